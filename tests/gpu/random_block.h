/*
 * random_block.h - memory of a GPU for one operation of a random program: an input and an output
 * one behind the other, each misaligned, with bytes around them that nobody may write.
 */
#ifndef DT_TEST_GPU_RANDOM_BLOCK_H
#define DT_TEST_GPU_RANDOM_BLOCK_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include <dtrain/dtrain.h>

typedef struct block {
    char *device; /* the library's memory, or cudaMalloc's */
    char *image;  /* pinned memory: what is written to all of it in the beginning */
    char *copy;   /* pinned: what it holds in the end */
    int is_librarys;
    size_t bytes;   /* of each of these */
    size_t in, out; /* where they begin */
    size_t out_bytes;
} block_t;

/* `seed` says whose memory it is, and how far from a border of 16 bytes each begins. Both are one
 * where is_in_place. */
void block_make(block_t *block, uint64_t seed, size_t element, size_t in_bytes, size_t out_bytes,
                int is_in_place);

/* Brings the image to the GPU, in a stream. */
void block_write(const block_t *block, cudaStream_t stream);

/* Fetches all of it, in a stream, and waits. */
void block_fetch(const block_t *block, cudaStream_t stream);

/* Whether what was fetched is the image but for the output. */
int block_is_intact(const block_t *block);

void block_free(block_t *block);

#endif
