/* blas.h - settles how OpenBLAS works in this process. */
#ifndef MLP_BLAS_H
#define MLP_BLAS_H

/*
 * One thread a rank: ranks share the cores among them. Returns NULL, or the setting of
 * OPENBLAS_CORETYPE with which this processor would be used better. OpenBLAS chooses its kernels
 * when it is loaded, and takes the oldest ones for a processor newer than itself, at a third of
 * the speed or less; only the environment can tell it otherwise.
 */
const char *blas_begin(void);

#endif
