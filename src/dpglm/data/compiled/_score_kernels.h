/* Scores and their products for rows in a public basis, in double precision throughout. */

#define SCORE_ROWS 64
#define SCORE_COLUMNS 128 /* as in kernels.py */
#define SCORE_PANEL 4     /* columns of the basis at once, as there */

typedef double doubles __attribute__((vector_size(32), aligned(8), may_alias));

/* What happens to a row z in the basis: z' = f a z, or z z^T times f h, f^2 h or (f a)^2, with
   f = margin min(1, clip / |z|, square / |z|^2), and slope a and curvature h cut at their
   largest. */
typedef struct {
    int64_t loss, sums;
    double slope, curvature, clip, square, margin;
} score_rule;

/* What is added up over rows. */
enum sums { OF_SCORES, OF_CURVATURE, OF_SQUARES, OF_VARIANCE };

/* z[c] = level[c] + sum over columns of their entries of SCORE_ROWS rows times the basis, for the
   columns c of a panel, each row by the same operations in the same order. */
INLINE void to_basis(double (*x)[SCORE_ROWS], ptrdiff_t columns, const double *basis,
                     const double *level, double (*z)[SCORE_ROWS]) {
    for (ptrdiff_t i = 0; i < SCORE_ROWS; i += 8) {
        doubles sums[SCORE_PANEL][2];
#pragma GCC unroll 8
        for (int c = 0; c < SCORE_PANEL; c++)
            sums[c][0] = sums[c][1] = (doubles){level[c], level[c], level[c], level[c]};
        for (ptrdiff_t j = 0; j < columns; j++) {
            const doubles first = *(const doubles *)(x[j] + i);
            const doubles second = *(const doubles *)(x[j] + i + 4);
#pragma GCC unroll 8
            for (int c = 0; c < SCORE_PANEL; c++) {
                sums[c][0] += first * basis[j * SCORE_PANEL + c];
                sums[c][1] += second * basis[j * SCORE_PANEL + c];
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < SCORE_PANEL; c++) {
            *(doubles *)(z[c] + i) = sums[c][0];
            *(doubles *)(z[c] + i + 4) = sums[c][1];
        }
    }
}

/* The factor of each row in the sums: of z, or of z z^T. */
INLINE void score_factors(const score_rule *how, ptrdiff_t size, const double *v,
                          double (*z)[SCORE_ROWS], const double *targets, const double *weights,
                          double *factors) {
    double squares[SCORE_ROWS] = {0}, predictions[SCORE_ROWS] = {0};
    for (ptrdiff_t c = 0; c < size; c++)
#pragma omp simd
        for (int i = 0; i < SCORE_ROWS; i++) {
            squares[i] += z[c][i] * z[c][i];
            predictions[i] += z[c][i] * v[c];
        }
    const double slope = how->slope, curvature = how->curvature;
    const double clip = how->clip, square = how->square, margin = how->margin;
    const int64_t sums = how->sums;
    /* Loops of one operation or two, which compilers turn into vector code. */
#pragma omp simd
    for (int i = 0; i < SCORE_ROWS; i++) factors[i] = __builtin_sqrt(squares[i]);
#pragma omp simd
    for (int i = 0; i < SCORE_ROWS; i++) {
        const double length = factors[i] / clip, area = squares[i] / square;
        squares[i] = length > area ? length : area;
    }
#pragma omp simd
    for (int i = 0; i < SCORE_ROWS; i++)
        squares[i] = margin / (squares[i] > 1.0 ? squares[i] : 1.0); /* f */
#pragma omp simd
    for (int i = 0; i < SCORE_ROWS; i++) factors[i] = squares[i] * weights[i];
    if (sums != OF_VARIANCE)
        for (int i = 0; i < SCORE_ROWS; i++) squares[i] = 1.0;
    if (sums == OF_SCORES || sums == OF_SQUARES)
#pragma omp simd
        for (int i = 0; i < SCORE_ROWS; i++) {
            const double p = predictions[i], y = targets[i];
            double a = -y / (1.0 + exponential_float64(y * p));
            a = (a - a == 0.0 ? a : 0.0) / slope; /* a slope that overflowed counts as zero */
            a = a > 1.0 ? 1.0 : a;
            factors[i] *= a < -1.0 ? -1.0 : a;
        }
    else
#pragma omp simd
        for (int i = 0; i < SCORE_ROWS; i++) {
            const double p = predictions[i], e = exponential_float64(p < 0.0 ? p : -p);
            double h = e / ((1.0 + e) * (1.0 + e));
            h = (h - h == 0.0 ? h : 0.0) / curvature;
            factors[i] *= squares[i] * (h > 1.0 ? 1.0 : h);
        }
    if (sums == OF_SQUARES)
#pragma omp simd
        for (int i = 0; i < SCORE_ROWS; i++) factors[i] *= factors[i];
}

INLINE double sum_of_lanes(doubles v) { return (v[0] + v[1]) + (v[2] + v[3]); }

/* total[a][b] += sum of z[a] times `scaled`[b] over rows, for b from the panel of a on. */
INLINE void add_products(double (*z)[SCORE_ROWS], double (*scaled)[SCORE_ROWS], ptrdiff_t padded,
                         double *total) {
    for (ptrdiff_t a = 0; a < padded; a += SCORE_PANEL)
        for (ptrdiff_t b = a; b < padded; b += 2) {
            doubles sums[SCORE_PANEL][2] = {{{0}}};
            for (ptrdiff_t i = 0; i < SCORE_ROWS; i += 4) {
                const doubles first = *(const doubles *)(scaled[b] + i);
                const doubles second = *(const doubles *)(scaled[b + 1] + i);
#pragma GCC unroll 8
                for (int k = 0; k < SCORE_PANEL; k++) {
                    const doubles here = *(const doubles *)(z[a + k] + i);
                    sums[k][0] += here * first;
                    sums[k][1] += here * second;
                }
            }
#pragma GCC unroll 8
            for (int k = 0; k < SCORE_PANEL; k++) {
                total[(a + k) * padded + b] += sum_of_lanes(sums[k][0]);
                total[(a + k) * padded + b + 1] += sum_of_lanes(sums[k][1]);
            }
        }
}

/* Add up what the rule says of SCORE_ROWS rows, stored by columns in `x`. */
INLINE void add_scores(const score_rule *how, double (*x)[SCORE_ROWS], ptrdiff_t columns,
                       ptrdiff_t padded, const double *basis, const double *level,
                       const double *v, const double *targets, const double *weights,
                       double *total) {
    double z[SCORE_COLUMNS + SCORE_PANEL][SCORE_ROWS], factors[SCORE_ROWS];
    for (ptrdiff_t c = 0; c < padded; c += SCORE_PANEL)
        to_basis(x, columns, basis + c * columns, level + c, z + c);
    score_factors(how, padded, v, z, targets, weights, factors);
    if (how->sums == OF_SCORES) {
        for (ptrdiff_t c = 0; c < padded; c++) {
            doubles sum = {0};
            for (ptrdiff_t i = 0; i < SCORE_ROWS; i += 4)
                sum += *(const doubles *)(z[c] + i) * *(const doubles *)(factors + i);
            total[c] += sum_of_lanes(sum);
        }
        return;
    }
    double scaled[SCORE_COLUMNS + SCORE_PANEL][SCORE_ROWS];
    for (ptrdiff_t c = 0; c < padded; c++)
#pragma omp simd
        for (int i = 0; i < SCORE_ROWS; i++) scaled[c][i] = z[c][i] * factors[i];
    add_products(z, scaled, padded, total);
}
