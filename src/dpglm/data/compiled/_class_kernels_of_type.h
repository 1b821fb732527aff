/* Kernels for losses with one output for each class, over rows of type REAL. */

#define ROWS_AT_ONCE 2
#define CLASSES_AT_ONCE 5
#define PANEL_ROWS 4
#define PANEL_COLUMNS 4
#define PANEL (2 * LANES) /* classes */
#define CACHED_COLUMNS (64 * LANES)

/* What is known of CLASS_ROWS rows. */
typedef struct {
    const REAL *x[CLASS_ROWS];
    REAL targets[CLASS_ROWS];
    double norms[CLASS_ROWS], weights[CLASS_ROWS];
} NAME(class_rows);

/* Find `here` rows from `start` on. What is missing at the end is taken from the last of them, and
   not added up. */
INLINE void NAME(find)(NAME(class_rows) *found, ptrdiff_t start, ptrdiff_t here, const REAL *X,
                       ptrdiff_t stride, const int64_t *which, const int64_t *targets,
                       const REAL *norms, const REAL *weights) {
    for (ptrdiff_t i = 0; i < CLASS_ROWS; i++) {
        const ptrdiff_t row = start + (i < here ? i : here - 1);
        found->x[i] = X + (which ? which[row] : row) * stride;
        found->targets[i] = targets[row];
        found->norms[i] = norms[row];
        found->weights[i] = weights ? weights[row] : 1.0;
    }
}

/* The predictions of CLASS_ROWS rows for all classes, offsets apart, become clipped slopes. */
INLINE void NAME(softmax_slopes)(const rule *how, ptrdiff_t classes, const double *offsets,
                                 const NAME(class_rows) *rows, REAL (*z)[CLASS_ROWS]) {
    REAL most[CLASS_ROWS], sums[CLASS_ROWS], squares[CLASS_ROWS], factors[CLASS_ROWS];
    const double bound = how->bound, stability = how->stability;
    const int flat = how->clipping == FLAT;
    for (int i = 0; i < CLASS_ROWS; i++) {
        most[i] = z[0][i] + (REAL)offsets[0];
        sums[i] = 0;
        squares[i] = classes * (REAL)SMALLEST; /* of squares that underflow */
    }
    for (ptrdiff_t c = 0; c < classes; c++) {
        const REAL offset = offsets[c];
#pragma omp simd
        for (int i = 0; i < CLASS_ROWS; i++) {
            z[c][i] += offset;
            most[i] = z[c][i] > most[i] ? z[c][i] : most[i];
        }
    }
    for (ptrdiff_t c = 0; c < classes; c++)
#pragma omp simd
        for (int i = 0; i < CLASS_ROWS; i++) {
            z[c][i] = NAME(exponential)(z[c][i] - most[i]);
            sums[i] += z[c][i];
        }
    for (ptrdiff_t c = 0; c < classes; c++)
#pragma omp simd
        for (int i = 0; i < CLASS_ROWS; i++) {
            z[c][i] = z[c][i] / sums[i] - (rows->targets[i] == (REAL)c ? 1 : 0);
            squares[i] += z[c][i] * z[c][i];
        }
#pragma omp simd
    for (int i = 0; i < CLASS_ROWS; i++) {
        const double length = __builtin_sqrt((double)squares[i]) * rows->norms[i];
        const double limited = length > bound ? bound / length : 1.0;
        double factor = flat ? limited : bound / (length + stability);
        factor = factor < 0x1p-1022 ? 0.0 : factor * rows->weights[i];
        factors[i] = NAME(held)(length - length == 0.0 ? factor : 0.0); /* not if slopes overflowed */
    }
    for (ptrdiff_t c = 0; c < classes; c++)
#pragma omp simd
        for (int i = 0; i < CLASS_ROWS; i++)
            z[c][i] = factors[i] == 0 ? 0 : NAME(held)((double)z[c][i] * factors[i]);
}

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
    REAL z[MOST_CLASSES + CLASSES_AT_ONCE][CLASS_ROWS] = {{0}};
    NAME(class_rows) found;
    const REAL *const *x = found.x;
    for (ptrdiff_t start = 0; start < rows; start += CLASS_ROWS) {
        const ptrdiff_t here = rows - start < CLASS_ROWS ? rows - start : CLASS_ROWS;
        NAME(find)(&found, start, here, X, stride, which, targets, norms, weights);
        for (ptrdiff_t c = 0; c < classes; c += CLASSES_AT_ONCE)
            for (ptrdiff_t i = 0; i < here; i += ROWS_AT_ONCE) {
                REAL some[ROWS_AT_ONCE][CLASSES_AT_ONCE];
                NAME(predict_classes)(x + i, w + c * padded, padded, columns, some);
#pragma GCC unroll 8
                for (int r = 0; r < ROWS_AT_ONCE; r++)
#pragma GCC unroll 8
                    for (int k = 0; k < CLASSES_AT_ONCE; k++) z[c + k][i + r] = some[r][k];
            }
        NAME(softmax_slopes)(how, classes, offsets, &found, z);
        for (ptrdiff_t c = 0; c < classes; c++)
            total[c * (columns + 1) + columns] += NAME(sum)(z[c], here);
        for (ptrdiff_t j = 0; j + LANES <= columns;) {
            const int parts = j + 2 * LANES <= columns ? 2 : 1;
            for (ptrdiff_t c = 0; c < classes; c += CLASSES_AT_ONCE) {
                double *sums = total + c * (columns + 1);
                if (parts == 2)
                    NAME(add_classes)(x, here, j, 2, z[c], classes - c, columns + 1, sums);
                else
                    NAME(add_classes)(x, here, j, 1, z[c], classes - c, columns + 1, sums);
            }
            j += parts * LANES;
        }
        for (ptrdiff_t j = columns / LANES * LANES; j < columns; j++)
            for (ptrdiff_t c = 0; c < classes; c++) {
                REAL sum = 0;
                for (ptrdiff_t i = 0; i < here; i++) sum += x[i][j] * z[c][i];
                total[c * (columns + 1) + j] += sum;
            }
    }
}

/* z += what columns from `from` on add to the predictions of PANEL_ROWS rows for a panel of classes,
   each by the same operations in the same order. */
INLINE void NAME(predict_panel)(const REAL *const *x, const REAL *w, ptrdiff_t from, ptrdiff_t to,
                                REAL (*z)[CLASS_ROWS]) {
    NAME(lanes) sums[PANEL_ROWS][2] = {{{0}}};
    for (ptrdiff_t j = from; j < to; j++) {
        const NAME(lanes) *v = (const NAME(lanes) *)(w + j * PANEL);
#pragma GCC unroll 8
        for (int i = 0; i < PANEL_ROWS; i++) {
            sums[i][0] += v[0] * x[i][j];
            sums[i][1] += v[1] * x[i][j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < PANEL_ROWS; i++)
#pragma GCC unroll 16
        for (int l = 0; l < PANEL; l++) z[l][i] += sums[i][l / LANES][l % LANES];
}

/* total += sum of slopes times row for a panel of classes and `count` columns. */
INLINE void NAME(add_panel)(const REAL *const *x, ptrdiff_t rows, ptrdiff_t from, int count,
                            const REAL *slopes, double *total) {
    NAME(lanes) sums[PANEL_COLUMNS][2] = {{{0}}};
    for (ptrdiff_t i = 0; i < rows; i++) {
        const NAME(lanes) *v = (const NAME(lanes) *)(slopes + i * PANEL);
#pragma GCC unroll 8
        for (int k = 0; k < count; k++) {
            sums[k][0] += v[0] * x[i][from + k];
            sums[k][1] += v[1] * x[i][from + k];
        }
    }
#pragma GCC unroll 8
    for (int k = 0; k < count; k++) {
        REAL of_column[PANEL];
        memcpy(of_column, sums[k], sizeof of_column);
#pragma omp simd
        for (int l = 0; l < PANEL; l++) total[(from + k) * PANEL + l] += of_column[l];
    }
}

/* The same with vectors of classes in place of vectors of columns: better for many classes or few
   columns.

   Panels of PANEL classes lie one after the other, the last with zeros for those that are missing:
   in `w` each with a row of PANEL entries for each column, in `total` also one for the sums of the
   slopes. */
EACH_PROCESSOR void
NAME(softmax_sum_by_panels)(const REAL *X, ptrdiff_t stride, const int64_t *which, ptrdiff_t rows,
                            ptrdiff_t columns, ptrdiff_t classes, const REAL *w,
                            const double *offsets, const rule *how, const int64_t *targets,
                            const REAL *norms, const REAL *weights, double *total) {
    REAL z[MOST_CLASSES + PANEL][CLASS_ROWS] = {{0}};
    REAL slopes[(MOST_CLASSES + PANEL) * CLASS_ROWS] = {0};
    NAME(class_rows) found;
    const REAL *const *x = found.x;
    for (ptrdiff_t start = 0; start < rows; start += CLASS_ROWS) {
        const ptrdiff_t here = rows - start < CLASS_ROWS ? rows - start : CLASS_ROWS;
        NAME(find)(&found, start, here, X, stride, which, targets, norms, weights);
        memset(z, 0, sizeof z);
        for (ptrdiff_t from = 0; from < columns; from += CACHED_COLUMNS) {
            const ptrdiff_t to = columns - from < CACHED_COLUMNS ? columns : from + CACHED_COLUMNS;
            for (ptrdiff_t c = 0; c < classes; c += PANEL)
                for (ptrdiff_t i = 0; i < here; i += PANEL_ROWS)
                    NAME(predict_panel)(x + i, w + c * columns, from, to,
                                        (REAL(*)[CLASS_ROWS])(z[c] + i));
        }
        NAME(softmax_slopes)(how, classes, offsets, &found, z);
        for (ptrdiff_t c = 0; c < classes; c++) {
            REAL *of_class = slopes + c / PANEL * PANEL * CLASS_ROWS + c % PANEL;
            for (ptrdiff_t i = 0; i < CLASS_ROWS; i++) of_class[i * PANEL] = z[c][i];
            total[c / PANEL * PANEL * (columns + 1) + columns * PANEL + c % PANEL] +=
                NAME(sum)(z[c], here);
        }
        for (ptrdiff_t j = 0; j < columns;) {
            const int count = j + PANEL_COLUMNS <= columns ? PANEL_COLUMNS : 1;
            for (ptrdiff_t c = 0; c < classes; c += PANEL) {
                const REAL *s = slopes + c * CLASS_ROWS;
                double *sums = total + c * (columns + 1);
                if (count == PANEL_COLUMNS)
                    NAME(add_panel)(x, here, j, PANEL_COLUMNS, s, sums);
                else
                    NAME(add_panel)(x, here, j, 1, s, sums);
            }
            j += count;
        }
    }
}
#undef ROWS_AT_ONCE
#undef CLASSES_AT_ONCE
#undef PANEL_ROWS
#undef PANEL_COLUMNS
#undef PANEL
#undef CACHED_COLUMNS
