/* Kernels for losses with one output for each class, over rows whose entries are of type REAL. */

#define ROWS_AT_ONCE 2
#define CLASSES_AT_ONCE 5

/* Predictions of ROWS_AT_ONCE rows for CLASSES_AT_ONCE classes, each by the same operations in the
   same order. */
INLINE void NAME(predict_classes)(const REAL *const *x, const REAL *const *w, ptrdiff_t columns,
                                  REAL z[ROWS_AT_ONCE][CLASSES_AT_ONCE]) {
    NAME(lanes) sums[ROWS_AT_ONCE][CLASSES_AT_ONCE] = {{{0}}};
    ptrdiff_t j = 0;
    for (; j + LANES <= columns; j += LANES)
#pragma GCC unroll 8
        for (int c = 0; c < CLASSES_AT_ONCE; c++) {
            const NAME(lanes) v = *(const NAME(lanes) *)(w[c] + j);
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
            for (ptrdiff_t rest = j; rest < columns; rest++) sum += x[i][rest] * w[c][rest];
#pragma GCC unroll 8
            for (int l = 0; l < LANES; l += 4) sum += (one[l] + one[l + 1]) + (one[l + 2] + one[l + 3]);
            z[i][c] = sum;
        }
}

#define ADDED_CLASSES 4

/* total += sum of slope times row for ADDED_CLASSES classes and `parts` vectors of columns. */
INLINE void NAME(add_classes)(const REAL *const *x, ptrdiff_t rows, ptrdiff_t from, int parts,
                              const REAL *slopes, ptrdiff_t padded, ptrdiff_t classes,
                              ptrdiff_t stride, double *total) {
    NAME(lanes) sums[ADDED_CLASSES][2] = {{{0}}};
    for (ptrdiff_t i = 0; i < rows; i++) {
        const REAL *s = slopes + i * padded;
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++) {
            const NAME(lanes) v = *(const NAME(lanes) *)(x[i] + from + part * LANES);
#pragma GCC unroll 8
            for (int c = 0; c < ADDED_CLASSES; c++) sums[c][part] += v * s[c];
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < ADDED_CLASSES; c++) {
        REAL of_class[2 * LANES];
        memcpy(of_class, sums[c], sizeof of_class);
        if (c < classes)
#pragma omp simd
            for (int l = 0; l < parts * LANES; l++) total[c * stride + from + l] += of_class[l];
    }
}

/* Sum of clipped slopes times row over rows in C order for the softmax loss.

   `w` has a row of `columns` entries for each class, `total` one of columns + 1, whose last entry
   becomes the sum of the slopes; `targets` are numbers of classes. `space` has room for CLASS_ROWS
   times the classes, rounded up to a multiple of ADDED_CLASSES, in double precision, and `slopes`
   for as many REALs. Row i is the one at which[i], or at i if `which` is null. */
EACH_PROCESSOR void
NAME(softmax_sum)(const REAL *X, ptrdiff_t stride, const int64_t *which, ptrdiff_t rows,
                  ptrdiff_t columns, ptrdiff_t classes, const REAL *w, const double *offsets,
                  const rule *how, const int64_t *targets, const REAL *norms, const REAL *weights,
                  double *space, REAL *slopes, double *total) {
    const ptrdiff_t padded = (classes + ADDED_CLASSES - 1) / ADDED_CLASSES * ADDED_CLASSES;
    const REAL *x[CLASS_ROWS + ROWS_AT_ONCE];
    memset(slopes, 0, CLASS_ROWS * padded * sizeof(REAL));
    for (ptrdiff_t start = 0; start < rows; start += CLASS_ROWS) {
        const ptrdiff_t here = rows - start < CLASS_ROWS ? rows - start : CLASS_ROWS;
        for (ptrdiff_t i = 0; i < here; i++)
            x[i] = X + (which ? which[start + i] : start + i) * stride;
        for (ptrdiff_t i = 0; i < ROWS_AT_ONCE; i++) x[here + i] = x[here - 1];
        for (ptrdiff_t c = 0; c < classes; c += CLASSES_AT_ONCE) {
            const REAL *v[CLASSES_AT_ONCE];
            for (ptrdiff_t k = 0; k < CLASSES_AT_ONCE; k++)
                v[k] = w + (c + k < classes ? c + k : c) * columns;
            for (ptrdiff_t i = 0; i < here; i += ROWS_AT_ONCE) {
                REAL z[ROWS_AT_ONCE][CLASSES_AT_ONCE];
                NAME(predict_classes)(x + i, v, columns, z);
                for (ptrdiff_t r = 0; r < ROWS_AT_ONCE && i + r < here; r++)
                    for (ptrdiff_t k = 0; k < CLASSES_AT_ONCE && c + k < classes; k++)
                        space[(i + r) * padded + c + k] = z[r][k] + offsets[c + k];
            }
        }
        for (ptrdiff_t i = 0; i < here; i++) {
            double *z = space + i * padded;
            softmax_slopes(how, classes, targets[start + i], norms[start + i],
                           weights ? weights[start + i] : 1.0, z);
            for (ptrdiff_t c = 0; c < classes; c++) {
                slopes[i * padded + c] = NAME(held)(z[c]);
                total[c * (columns + 1) + columns] += slopes[i * padded + c];
            }
        }
        for (ptrdiff_t j = 0; j + LANES <= columns;) {
            const int parts = j + 2 * LANES <= columns ? 2 : 1;
            for (ptrdiff_t c = 0; c < classes; c += ADDED_CLASSES) {
                double *sums = total + c * (columns + 1);
                if (parts == 2)
                    NAME(add_classes)(x, here, j, 2, slopes + c, padded, classes - c, columns + 1, sums);
                else
                    NAME(add_classes)(x, here, j, 1, slopes + c, padded, classes - c, columns + 1, sums);
            }
            j += parts * LANES;
        }
        for (ptrdiff_t j = columns / LANES * LANES; j < columns; j++)
            for (ptrdiff_t c = 0; c < classes; c++) {
                REAL sum = 0;
                for (ptrdiff_t i = 0; i < here; i++) sum += x[i][j] * slopes[i * padded + c];
                total[c * (columns + 1) + j] += sum;
            }
    }
}
#undef ROWS_AT_ONCE
#undef CLASSES_AT_ONCE
#undef ADDED_CLASSES
