/* Sums of scores over rows of type REAL. */

/* Row i has its entry of column j at X[i * by_row + j * by_column]. `basis` holds panels of
   SCORE_PANEL of its `padded` columns, `level` what a row's constant column adds, `total` as many
   numbers as there are sums: `padded`, or their square, of which panels above the diagonal count. */
EACH_PROCESSOR void
NAME(score_sum)(const score_rule *how, const REAL *X, ptrdiff_t by_row, ptrdiff_t by_column,
                ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t padded, const double *basis,
                const double *level, const double *v, const REAL *targets, const REAL *weights,
                double *total) {
    double x[SCORE_COLUMNS][SCORE_ROWS], y[SCORE_ROWS], w[SCORE_ROWS];
    for (ptrdiff_t start = 0; start < rows; start += SCORE_ROWS) {
        const ptrdiff_t here = rows - start < SCORE_ROWS ? rows - start : SCORE_ROWS;
        for (ptrdiff_t i = 0; i < SCORE_ROWS; i += 4) {
            const REAL *from[4];
            for (ptrdiff_t k = 0; k < 4; k++) {
                /* What is missing at the end is taken from the last row, and weighs nothing. */
                const ptrdiff_t row = start + (i + k < here ? i + k : here - 1);
                from[k] = X + row * by_row;
                y[i + k] = targets[row];
                w[i + k] = i + k >= here ? 0.0 : weights ? weights[row] : 1.0;
                if (by_column == 1)
                    for (ptrdiff_t b = 0; b < columns * (ptrdiff_t)sizeof(REAL); b += 64)
                        __builtin_prefetch((void *)((uintptr_t)from[k] + SCORE_ROWS * by_row * sizeof(REAL) + b));
            }
            for (ptrdiff_t j = 0; j < columns; j++) {
                const ptrdiff_t at = j * by_column;
                *(doubles *)(x[j] + i) = (doubles){from[0][at], from[1][at], from[2][at], from[3][at]};
            }
        }
        add_scores(how, x, columns, padded, basis, level, v, y, w, total);
    }
}
