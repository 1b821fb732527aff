/* Bounded sums over rows in one pass over memory: predict, slope, clip, add up.

   Rows are taken in chunks that stay in the core's cache between their two uses. A row's
   prediction is computed by the same operations wherever the row stands, so one row more or less
   never changes what another row contributes. Contributions are added up in double precision,
   those of dense rows in runs of at most RUN_ROWS rows in the rows' own precision before.

   Compile without -ffast-math: NaN and infinity must mean what IEEE 754 says. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ABI 11 /* as in kernels.py */
#define GROUP 8
#define CHUNK_ROWS 512
#define COLUMN_ROWS 768
#define CHUNK_BYTES (8 << 10)
#define SHORT_ROW_BYTES 1024 /* longer rows are fetched ahead by the processor itself */
#define SPARSE_CHUNK_ROWS 32
#define RUN_ROWS 64 /* as in dense.py */
#define CLASS_ROWS RUN_ROWS
#define MOST_CLASSES 64 /* as in kernels.py */

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define EACH_PROCESSOR \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EACH_PROCESSOR
#endif
#define INLINE static inline __attribute__((always_inline))

int64_t kernels_abi(void) { return ABI; }

/* As in oracle/gradients.py. */
enum loss { LOGISTIC, SQUARED, HUBER, SQUARED_HINGE, SOFTMAX };
enum clipping { FLAT, AUTOMATIC, BALANCED };

/* What happens to a row between its prediction and its contribution. */
typedef struct {
    int64_t loss, clipping;
    double parameter, bound, stability;
} rule;

/* e^x to a few units in the last place for |x| <= 708; beyond, e^708 or e^-708. */
INLINE double exponential_float64(double x) {
    const double to_integer = 0x1.8p52; /* adding it rounds to an integer, kept in the low bits */
    double bounded = x < -708.0 ? -708.0 : x;
    bounded = bounded > 708.0 ? 708.0 : bounded;
    double shifted = bounded * 0x1.71547652b82fep0 + to_integer;
    double k = shifted - to_integer;
    double r = (bounded - k * 0x1.62e42fefa0000p-1) - k * 0x1.cf79abc9e3b39p-40;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* The same for |x| <= 87. */
INLINE float exponential_float32(float x) {
    const float to_integer = 0x1.8p23f;
    float bounded = x < -87.0f ? -87.0f : x;
    bounded = bounded > 87.0f ? 87.0f : bounded;
    float shifted = bounded * 0x1.715476p0f + to_integer;
    float k = shifted - to_integer;
    float r = (bounded - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

#include "_score_kernels.h"

#define REAL float
#define SMALLEST 0x1p-126
#define NAME(name) name##_float32
#include "_kernels_of_type.h"
#include "_class_kernels_of_type.h"
#include "_score_kernels_of_type.h"
#define INDEX int32_t
#define SPARSE_NAME(name) name##_float32_int32
#include "_sparse_kernels_of_type.h"
#define INDEX int64_t
#define SPARSE_NAME(name) name##_float32_int64
#include "_sparse_kernels_of_type.h"
#undef LANES
#undef SMALLEST
#undef REAL
#undef NAME
#define REAL double
#define SMALLEST 0x1p-1022
#define NAME(name) name##_float64
#include "_kernels_of_type.h"
#include "_class_kernels_of_type.h"
#include "_score_kernels_of_type.h"
#define INDEX int32_t
#define SPARSE_NAME(name) name##_float64_int32
#include "_sparse_kernels_of_type.h"
#define INDEX int64_t
#define SPARSE_NAME(name) name##_float64_int64
#include "_sparse_kernels_of_type.h"
