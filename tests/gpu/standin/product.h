/* product.h - a product of matrices in device memory, as the stand-ins for cuBLAS compute it. */
#ifndef STANDIN_PRODUCT_H
#define STANDIN_PRODUCT_H

#include <stdint.h>

#include <library_types.h>

/* What is done besides; as cuBLASLt's epilogues. */
typedef enum standin_epilogue {
    STANDIN_PLAIN = 0,
    STANDIN_BIAS = 1,
    STANDIN_RELU_AUX_BIAS = 2, /* and a bit an element: whether it passed */
    STANDIN_DRELU = 3,         /* by these bits */
    STANDIN_BGRADA = 4         /* and the sums of A's rows, into `bias` */
} standin_epilogue_t;

typedef struct standin_product {
    cudaDataType_t type; /* of all matrices, and of the bias */
    int rounds_to_tf32;  /* operands lose all but 10 bits of their mantissas */
    int64_t m, n, k;     /* D is m x n, column after column, as all matrices */
    int a_transposed, b_transposed;
    float alpha, beta;
    const void *a, *b, *c;
    void *d;
    int64_t lda, ldb, ldc, ldd;
    standin_epilogue_t epilogue;
    void *bias;
    uint8_t *mask;   /* column after column */
    int64_t mask_ld; /* in bits */
} standin_product_t;

/* Ends the program unless all that the product uses is in allocations of device memory. */
void standin_product_check(const standin_product_t *product);

/* A stream's work; the argument is a standin_product_t. */
void standin_product_run(void *argument);

#endif
