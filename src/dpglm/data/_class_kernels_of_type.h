/* Kernels for losses with one output for each class, over rows whose entries are of type REAL. */

#define ROWS_AT_ONCE 2
#define CLASSES_AT_ONCE 5

/* Predictions of ROWS_AT_ONCE rows for CLASSES_AT_ONCE classes, each by the same operations in the
   same order. Rows of the parameter lie `padded` entries apart. */
INLINE void NAME(predict_classes)(const REAL *const *x, const REAL *w, ptrdiff_t padded,
                                  ptrdiff_t columns, REAL z[ROWS_AT_ONCE][CLASSES_AT_ONCE]) {
    NAME(lanes) sums[ROWS_AT_ONCE][CLASSES_AT_ONCE] = {{{0}}};
    ptrdiff_t j = 0;
    for (; j + LANES <= columns; j += LANES)
#pragma GCC unroll 8
        for (int c = 0; c < CLASSES_AT_ONCE; c++) {
            const NAME(lanes) v = *(const NAME(lanes) *)(w + c * padded + j);
#pragma GCC unroll 8
            for (int i = 0; i < ROWS_AT_ONCE; i++)
                sums[i][c] += *(const NAME(lanes) *)(x[i] + j) * v;
        }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS_AT_ONCE; i++)
#pragma GCC unroll 8
        for (int c = 0; c < CLASSES_AT_ONCE; c++) {
            REAL one[LANES], sum = 0;
            memcpy(one, &sums[i][c], sizeof one);
            for (ptrdiff_t rest = j; rest < columns; rest++)
                sum += x[i][rest] * w[c * padded + rest];
#pragma GCC unroll 8
            for (int l = 0; l < LANES; l += 4) sum += (one[l] + one[l + 1]) + (one[l + 2] + one[l + 3]);
            z[i][c] = sum;
        }
}

/* total += sum of slope times row for CLASSES_AT_ONCE classes and `parts` vectors of columns; a
   class has CLASS_ROWS slopes. */
INLINE void NAME(add_classes)(const REAL *const *x, ptrdiff_t rows, ptrdiff_t from, int parts,
                              const REAL *slopes, ptrdiff_t classes, ptrdiff_t stride,
                              double *total) {
    NAME(lanes) sums[CLASSES_AT_ONCE][2] = {{{0}}};
    for (ptrdiff_t i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++) {
            const NAME(lanes) v = *(const NAME(lanes) *)(x[i] + from + part * LANES);
#pragma GCC unroll 8
            for (int c = 0; c < CLASSES_AT_ONCE; c++) sums[c][part] += v * slopes[c * CLASS_ROWS + i];
        }
#pragma GCC unroll 8
    for (int c = 0; c < CLASSES_AT_ONCE; c++) {
        REAL of_class[2 * LANES];
        memcpy(of_class, sums[c], sizeof of_class);
        if (c < classes)
#pragma omp simd
            for (int l = 0; l < parts * LANES; l++) total[c * stride + from + l] += of_class[l];
    }
}

/* Sum of clipped slopes times row over rows in C order for the softmax loss, of at most MOST_CLASSES
   classes.

   `w` has a row of `padded` entries, the first `columns` of which count, for each class and for as
   many more as make their number a multiple of CLASSES_AT_ONCE; `total` one of columns + 1 for each
   class, whose last entry becomes the sum of the slopes; `targets` are numbers of classes. Row i is
   the one at which[i], or at i if `which` is null. */
EACH_PROCESSOR void
NAME(softmax_sum)(const REAL *X, ptrdiff_t stride, const int64_t *which, ptrdiff_t rows,
                  ptrdiff_t columns, ptrdiff_t classes, const REAL *w, ptrdiff_t padded,
                  const double *offsets, const rule *how, const int64_t *targets,
                  const REAL *norms, const REAL *weights, double *total) {
    double z[MOST_CLASSES + CLASSES_AT_ONCE][CLASS_ROWS] = {{0}};
    REAL slopes[(MOST_CLASSES + CLASSES_AT_ONCE) * CLASS_ROWS] = {0};
    class_facts facts;
    const REAL *x[CLASS_ROWS];
    for (ptrdiff_t start = 0; start < rows; start += CLASS_ROWS) {
        const ptrdiff_t here = rows - start < CLASS_ROWS ? rows - start : CLASS_ROWS;
        /* What is missing at the end is taken from the last row, and not added up. */
        for (ptrdiff_t i = 0; i < CLASS_ROWS; i++) {
            const ptrdiff_t row = start + (i < here ? i : here - 1);
            x[i] = X + (which ? which[row] : row) * stride;
            facts.targets[i] = targets[row];
            facts.norms[i] = norms[row];
            facts.weights[i] = weights ? weights[row] : 1.0;
        }
        for (ptrdiff_t c = 0; c < classes; c += CLASSES_AT_ONCE)
            for (ptrdiff_t i = 0; i < here; i += ROWS_AT_ONCE) {
                REAL some[ROWS_AT_ONCE][CLASSES_AT_ONCE];
                NAME(predict_classes)(x + i, w + c * padded, padded, columns, some);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS_AT_ONCE; r++)
#pragma GCC unroll 8
                    for (int k = 0; k < CLASSES_AT_ONCE; k++) z[c + k][i + r] = some[r][k];
            }
        softmax_slopes(how, classes, offsets, &facts, z);
        for (ptrdiff_t c = 0; c < classes; c++) {
            REAL *of_class = slopes + c * CLASS_ROWS;
            double sum = 0.0;
#pragma omp simd
            for (ptrdiff_t i = 0; i < CLASS_ROWS; i++) of_class[i] = NAME(held)(z[c][i]);
#pragma omp simd reduction(+ : sum)
            for (ptrdiff_t i = 0; i < here; i++) sum += of_class[i];
            total[c * (columns + 1) + columns] += sum;
        }
        for (ptrdiff_t j = 0; j + LANES <= columns;) {
            const int parts = j + 2 * LANES <= columns ? 2 : 1;
            for (ptrdiff_t c = 0; c < classes; c += CLASSES_AT_ONCE) {
                const REAL *s = slopes + c * CLASS_ROWS;
                double *sums = total + c * (columns + 1);
                if (parts == 2)
                    NAME(add_classes)(x, here, j, 2, s, classes - c, columns + 1, sums);
                else
                    NAME(add_classes)(x, here, j, 1, s, classes - c, columns + 1, sums);
            }
            j += parts * LANES;
        }
        for (ptrdiff_t j = columns / LANES * LANES; j < columns; j++)
            for (ptrdiff_t c = 0; c < classes; c++) {
                REAL sum = 0;
                for (ptrdiff_t i = 0; i < here; i++) sum += x[i][j] * slopes[c * CLASS_ROWS + i];
                total[c * (columns + 1) + j] += sum;
            }
    }
}
#undef ROWS_AT_ONCE
#undef CLASSES_AT_ONCE
