/* Kernels for rows of type REAL. */

#define LANES (32 / (ptrdiff_t)sizeof(REAL))
typedef REAL NAME(lanes) __attribute__((vector_size(32), aligned(sizeof(REAL)), may_alias));

/* A slope, or zero if REAL would lose the precision that the slope's bound counts on. */
INLINE REAL NAME(held)(double slope) {
    REAL s = slope, size = s < 0 ? -s : s;
    return size >= SMALLEST && s - s == 0 ? s : 0;
}

INLINE REAL NAME(slope_of)(int64_t loss, REAL parameter, REAL z, REAL y) {
    REAL r = z - y, margin = 1 - y * z;
    switch (loss) {
    case LOGISTIC:
        return -y / (1 + NAME(exponential)(y * z));
    case SQUARED:
        return r;
    case HUBER:
        r = r < -parameter ? -parameter : r;
        return r > parameter ? parameter : r;
    default:
        return (margin < 0 ? 0 : margin) * (-2 * y);
    }
}

#define ROWS_OF(x) \
    const REAL *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], \
               *x6 = x[6], *x7 = x[7];

/* Predictions of a group of rows, each by the same operations in the same order. */
INLINE void NAME(predict)(const REAL *const *x, const REAL *w, ptrdiff_t columns, REAL *z) {
    ROWS_OF(x)
    REAL z0 = 0, z1 = 0, z2 = 0, z3 = 0, z4 = 0, z5 = 0, z6 = 0, z7 = 0;
#pragma omp simd reduction(+ : z0, z1, z2, z3, z4, z5, z6, z7)
    for (ptrdiff_t j = 0; j < columns; j++) {
        REAL v = w[j];
        z0 += x0[j] * v;
        z1 += x1[j] * v;
        z2 += x2[j] * v;
        z3 += x3[j] * v;
        z4 += x4[j] * v;
        z5 += x5[j] * v;
        z6 += x6[j] * v;
        z7 += x7[j] * v;
    }
    z[0] = z0, z[1] = z1, z[2] = z2, z[3] = z3, z[4] = z4, z[5] = z5, z[6] = z6, z[7] = z7;
}

/* total += sum of slope times row over a group. */
INLINE void NAME(add)(const REAL *const *x, const REAL *s, ptrdiff_t columns,
                      double *restrict total) {
    ROWS_OF(x)
    REAL s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3], s4 = s[4], s5 = s[5], s6 = s[6], s7 = s[7];
#pragma omp simd
    for (ptrdiff_t j = 0; j < columns; j++) {
        REAL t = x0[j] * s0;
        t += x1[j] * s1;
        t += x2[j] * s2;
        t += x3[j] * s3;
        t += x4[j] * s4;
        t += x5[j] * s5;
        t += x6[j] * s6;
        t += x7[j] * s7;
        total[j] += t;
    }
}

/* z += columns times their entries of the parameter. */
INLINE void NAME(add_columns)(const REAL *const *x, const REAL *v, ptrdiff_t rows,
                              REAL *restrict z) {
    ROWS_OF(x)
    REAL v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3], v4 = v[4], v5 = v[5], v6 = v[6], v7 = v[7];
#pragma omp simd
    for (ptrdiff_t i = 0; i < rows; i++) {
        REAL t = x0[i] * v0;
        t += x1[i] * v1;
        t += x2[i] * v2;
        t += x3[i] * v3;
        t += x4[i] * v4;
        t += x5[i] * v5;
        t += x6[i] * v6;
        t += x7[i] * v7;
        z[i] += t;
    }
}

/* sums += columns times z, for each of LANES lanes: of at most RUN_ROWS products in the rows' own
   precision, of such sums in double precision. */
INLINE void NAME(dot_columns)(const REAL *const *x, const REAL *z, ptrdiff_t rows,
                              double (*sums)[LANES]) {
    const ptrdiff_t whole = rows / LANES * LANES, run = RUN_ROWS * LANES;
    for (ptrdiff_t start = 0; start < whole; start += run) {
        const ptrdiff_t end = whole - start < run ? whole : start + run;
        NAME(lanes) partial[GROUP] = {{0}};
        for (ptrdiff_t i = start; i < end; i += LANES) {
            const NAME(lanes) v = *(const NAME(lanes) *)(z + i);
#pragma GCC unroll 8
            for (int k = 0; k < GROUP; k++) partial[k] += *(const NAME(lanes) *)(x[k] + i) * v;
        }
#pragma GCC unroll 8
        for (int k = 0; k < GROUP; k++)
#pragma GCC unroll 8
            for (int l = 0; l < LANES; l++) sums[k][l] += partial[k][l];
    }
    for (ptrdiff_t i = whole; i < rows; i++)
        for (int k = 0; k < GROUP; k++) sums[k][0] += (double)x[k][i] * z[i];
}
#undef ROWS_OF

INLINE double NAME(sum)(const REAL *values, ptrdiff_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (ptrdiff_t i = 0; i < count; i++) sum += values[i];
    return sum;
}

INLINE ptrdiff_t NAME(chunk_rows)(ptrdiff_t columns) {
    ptrdiff_t rows = CHUNK_BYTES / (columns * (ptrdiff_t)sizeof(REAL)) / GROUP * GROUP;
    return rows < GROUP ? GROUP : (rows > CHUNK_ROWS ? CHUNK_ROWS : rows);
}

/* Predictions without the intercept's part become clipped slopes; `norms` bounds each row's length. */
INLINE void NAME(clipped)(int64_t loss, int64_t clipping, const rule *how, ptrdiff_t rows,
                          double offset, const REAL *targets, const REAL *norms,
                          const REAL *weights, REAL *z) {
    const double bound = how->bound, stability = how->stability;
    const REAL parameter = how->parameter, shift = offset;
#pragma omp simd
    for (ptrdiff_t i = 0; i < rows; i++) {
        double s = NAME(slope_of)(loss, parameter, z[i] + shift, targets[i]);
        s = s - s == 0.0 ? s : 0.0; /* a slope that overflowed counts as zero */
        if (clipping != AUTOMATIC) {
            double limit = bound / norms[i];
            if (clipping == BALANCED) {
                double size = s < 0.0 ? -s : s, largest = size < 0.5 ? 1.0 - size : size;
                s *= limit < largest ? limit / largest : 1.0;
            }
            s = s > limit ? limit : s;
            s = s < -limit ? -limit : s;
        } else {
            double length = (s < 0.0 ? -s : s) * norms[i];
            double factor = bound / (length + stability);
            s *= factor < 0x1p-1022 ? 0.0 : factor;
        }
        z[i] = NAME(held)(s);
    }
    if (weights)
#pragma omp simd
        for (ptrdiff_t i = 0; i < rows; i++) z[i] = NAME(held)((double)z[i] * weights[i]);
}

INLINE void NAME(clip_slopes)(const rule *how, ptrdiff_t rows, double offset, const REAL *targets,
                              const REAL *norms, const REAL *weights, REAL *z) {
#define CASE(loss) \
    case loss: \
        if (how->clipping == FLAT) \
            NAME(clipped)(loss, FLAT, how, rows, offset, targets, norms, weights, z); \
        else if (how->clipping == BALANCED) \
            NAME(clipped)(loss, BALANCED, how, rows, offset, targets, norms, weights, z); \
        else \
            NAME(clipped)(loss, AUTOMATIC, how, rows, offset, targets, norms, weights, z); \
        break;
    switch (how->loss) {
        CASE(LOGISTIC)
        CASE(SQUARED)
        CASE(HUBER)
        CASE(SQUARED_HINGE)
    default: /* not a loss of one output */
        memset(z, 0, rows * sizeof *z);
    }
#undef CASE
}

/* Norms of rows in C order, each from its own row alone, after columns were clipped to [low, high],
   centred and divided by their scale into `scaled`; rows are taken as they are if that is null. */
EACH_PROCESSOR void
NAME(prepare)(const REAL *X, ptrdiff_t rows, ptrdiff_t columns, const REAL *low, const REAL *high,
              const REAL *center, const REAL *scale, REAL *restrict scaled, double *norms) {
    for (ptrdiff_t i = 0; i < rows; i++) {
        const REAL *x = X + i * columns;
        double sum = 0.0;
        if (scaled) {
            REAL *to = scaled + i * columns;
#pragma omp simd reduction(+ : sum)
            for (ptrdiff_t j = 0; j < columns; j++) {
                REAL v = x[j] < low[j] ? low[j] : x[j];
                v = ((v > high[j] ? high[j] : v) - center[j]) / scale[j];
                to[j] = v;
                sum += (double)v * v;
            }
        } else {
#pragma omp simd reduction(+ : sum)
            for (ptrdiff_t j = 0; j < columns; j++) sum += (double)x[j] * x[j];
        }
        norms[i] = __builtin_sqrt(sum);
    }
}

/* Predictions of rows that lie one after the other, of shape (rows, outputs); `w` has a row for each
   output. */
EACH_PROCESSOR void
NAME(predictions)(const REAL *X, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t outputs, const REAL *w,
                  REAL *z) {
    for (ptrdiff_t i = 0; i < rows; i += GROUP) {
        const REAL *x[GROUP];
        for (ptrdiff_t k = 0; k < GROUP; k++) x[k] = X + (i + k < rows ? i + k : i) * columns;
        for (ptrdiff_t o = 0; o < outputs; o++) {
            REAL found[GROUP];
            NAME(predict)(x, w + o * columns, columns, found);
            for (ptrdiff_t k = 0; k < GROUP && i + k < rows; k++) z[(i + k) * outputs + o] = found[k];
        }
    }
}

/* Sum of slope times row, each product rounded to a multiple of the spacing of doubles at `large`;
   `total` has a row for each output. */
EACH_PROCESSOR void
NAME(sum_on_grid)(const REAL *X, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t outputs,
                  const REAL *slopes, double large, double *restrict total) {
    for (ptrdiff_t i = 0; i < rows; i++)
        for (ptrdiff_t o = 0; o < outputs; o++) {
            const REAL *x = X + i * columns;
            double *sums = total + o * columns;
            const double slope = slopes[i * outputs + o];
#pragma omp simd
            for (ptrdiff_t j = 0; j < columns; j++) sums[j] += (x[j] * slope + large) - large;
        }
}

/* Sum of clipped slope times row over rows in C order, each product rounded as in sum_on_grid; the last entry of `total` becomes that of slope times intercept. Slopes are computed
   for whole runs, so that each has the same operations wherever its row stands. */
EACH_PROCESSOR void
NAME(bounded_sum_on_grid)(const REAL *X, ptrdiff_t stride, const int64_t *which, ptrdiff_t rows,
                          ptrdiff_t columns, const REAL *w, double intercept, double offset,
                          const rule *how, const REAL *targets, const REAL *norms,
                          const REAL *weights, double large, double *restrict total) {
    const REAL *x[RUN_ROWS];
    REAL z[RUN_ROWS], y[RUN_ROWS], lengths[RUN_ROWS], factors[RUN_ROWS];
    for (ptrdiff_t start = 0; start < rows; start += RUN_ROWS) {
        const ptrdiff_t here = rows - start < RUN_ROWS ? rows - start : RUN_ROWS;
        for (ptrdiff_t i = 0; i < RUN_ROWS; i++) {
            const ptrdiff_t row = start + (i < here ? i : here - 1);
            x[i] = X + (which ? which[row] : row) * stride;
            y[i] = targets[row];
            lengths[i] = norms[row];
            factors[i] = weights ? weights[row] : 1;
        }
        for (ptrdiff_t i = 0; i < RUN_ROWS; i += GROUP) NAME(predict)(x + i, w, columns, z + i);
        NAME(clip_slopes)(how, RUN_ROWS, offset, y, lengths, factors, z);
        for (ptrdiff_t i = 0; i < here; i++) {
            const double slope = z[i];
#pragma omp simd
            for (ptrdiff_t j = 0; j < columns; j++) total[j] += (x[i][j] * slope + large) - large;
            total[columns] += (intercept * slope + large) - large;
        }
    }
}

/* Sum of clipped slope times row over rows in C order; the last entry of `total` becomes the sum
   of the slopes. Row i is the one at which[i], or at i if `which` is null; targets, norms and
   weights (null for ones) are in the order of i. */
EACH_PROCESSOR void
NAME(bounded_sum)(const REAL *X, ptrdiff_t stride, const int64_t *which, ptrdiff_t rows,
                  ptrdiff_t columns, const REAL *w, double offset, const rule *how,
                  const REAL *targets, const REAL *norms, const REAL *weights, double *total) {
    const ptrdiff_t chunk = NAME(chunk_rows)(columns);
    const ptrdiff_t row_bytes = columns * (ptrdiff_t)sizeof(REAL);
    const REAL *x[CHUNK_ROWS];
    REAL z[CHUNK_ROWS];
    for (ptrdiff_t start = 0; start < rows; start += chunk) {
        ptrdiff_t here = rows - start < chunk ? rows - start : chunk;
        for (ptrdiff_t i = 0; i < here; i++)
            x[i] = X + (which ? which[start + i] : start + i) * stride;
        ptrdiff_t padded = here;
        for (; padded % GROUP; padded++) x[padded] = x[here - 1];
        for (ptrdiff_t i = 0; i < padded; i += GROUP) NAME(predict)(x + i, w, columns, z + i);
        NAME(clip_slopes)(how, here, offset, targets + start, norms + start,
                          weights ? weights + start : NULL, z);
        for (ptrdiff_t i = here; i < padded; i++) z[i] = 0;
        for (ptrdiff_t i = 0; i < padded; i += GROUP) {
            NAME(add)(x + i, z + i, columns, total);
            if (row_bytes <= SHORT_ROW_BYTES && !which)
                for (ptrdiff_t b = 0; b < GROUP * row_bytes; b += 64)
                    __builtin_prefetch((void *)((uintptr_t)x[i] + chunk * stride * sizeof(REAL) + b));
        }
        total[columns] += NAME(sum)(z, here);
    }
}

/* The same over rows in Fortran order: entry (i, j) is at X[i + j * stride]. Chunks are longer, as
   memory is slow where many short pieces of columns are read; the last columns read, which the
   core's cache still has, are added up first. */
EACH_PROCESSOR void
NAME(bounded_sum_by_columns)(const REAL *X, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns,
                             const REAL *w, double offset, const rule *how, const REAL *targets,
                             const REAL *norms, const REAL *weights, double *total) {
    REAL z[COLUMN_ROWS];
    for (ptrdiff_t start = 0; start < rows; start += COLUMN_ROWS) {
        ptrdiff_t here = rows - start < COLUMN_ROWS ? rows - start : COLUMN_ROWS;
        const REAL *first = X + start;
        for (ptrdiff_t i = 0; i < here; i++) z[i] = 0;
        for (ptrdiff_t j = 0; j < columns; j += GROUP) {
            const REAL *x[GROUP];
            REAL v[GROUP];
            for (ptrdiff_t k = 0; k < GROUP; k++) {
                x[k] = first + (j + k < columns ? j + k : j) * stride;
                v[k] = j + k < columns ? w[j + k] : 0.0;
            }
            NAME(add_columns)(x, v, here, z);
        }
        NAME(clip_slopes)(how, here, offset, targets + start, norms + start,
                          weights ? weights + start : NULL, z);
        for (ptrdiff_t j = (columns - 1) / GROUP * GROUP; j >= 0; j -= GROUP) {
            const REAL *x[GROUP];
            double sums[GROUP][LANES] = {{0}};
            for (ptrdiff_t k = 0; k < GROUP; k++)
                x[k] = first + (j + k < columns ? j + k : j) * stride;
            NAME(dot_columns)(x, z, here, sums);
            for (ptrdiff_t k = 0; k < GROUP && j + k < columns; k++)
                for (int l = 0; l < LANES; l++) total[j + k] += sums[k][l];
        }
        total[columns] += NAME(sum)(z, here);
    }
}
