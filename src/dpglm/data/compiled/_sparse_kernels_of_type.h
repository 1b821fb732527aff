/* Kernel for CSR rows of type REAL with column numbers of type INDEX. */

/* Sum of clipped slope times row; the entry of `total` after the last column becomes the sum of
   the slopes. Row i has the entries pointers[i] to pointers[i + 1], no two in one column. */
EACH_PROCESSOR void
SPARSE_NAME(bounded_sum)(const REAL *data, const INDEX *indices, const INDEX *pointers,
                         ptrdiff_t rows, ptrdiff_t columns, const double *w, double offset,
                         const rule *how, const REAL *targets, const REAL *norms,
                         const REAL *weights, double *total) {
    REAL z[SPARSE_CHUNK_ROWS];
    for (ptrdiff_t start = 0; start < rows; start += SPARSE_CHUNK_ROWS) {
        ptrdiff_t here = rows - start < SPARSE_CHUNK_ROWS ? rows - start : SPARSE_CHUNK_ROWS;
        for (ptrdiff_t i = 0; i < here; i++) {
            double sum = 0.0;
#pragma omp simd reduction(+ : sum)
            for (INDEX k = pointers[start + i]; k < pointers[start + i + 1]; k++)
                sum += data[k] * w[indices[k]];
            z[i] = sum;
        }
        NAME(clip_slopes)(how, here, offset, targets + start, norms + start,
                          weights ? weights + start : NULL, z);
        for (ptrdiff_t i = 0; i < here; i++) {
            for (INDEX k = pointers[start + i]; k < pointers[start + i + 1]; k++)
                total[indices[k]] += (double)data[k] * z[i];
            total[columns] += z[i];
        }
    }
}

#undef INDEX
#undef SPARSE_NAME
