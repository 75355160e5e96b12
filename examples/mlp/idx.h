/* idx.h - reads IDX files of unsigned bytes, plain or compressed by gzip. */
#ifndef MLP_IDX_H
#define MLP_IDX_H

#include <stdint.h>

#include "error.h"

#define IDX_NDIM_MAX 3

typedef struct idx {
    int ndim;
    int64_t dims[IDX_NDIM_MAX];
    int64_t size; /* bytes of data: the product of dims */
    uint8_t *data;
} idx_t;

/*
 * Reads the whole file, which must hold unsigned bytes in `ndim` dimensions, and nothing more.
 * Whatever is wrong with it gives -1 and a text that begins with the path. No memory is taken
 * for data that the file is too small to hold.
 */
int idx_read(const char *path, int ndim, idx_t *out, mlp_error_t *error);

/* Nothing for an idx_t of zeros. */
void idx_free(idx_t *idx);

#endif
