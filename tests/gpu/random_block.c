#include "random_block.h"

#include <string.h>

#include "device.h"
#include "random_program.h"

#define GUARD 64
#define PATTERN 0x5a

/* The next place on a border of 16 bytes and a few elements. */
static size_t misaligned(uint64_t *seed, size_t at, size_t element)
{
    size_t border = (at + GUARD + 15) / 16 * 16;
    return border + element * random_below(seed, 4);
}

void block_make(block_t *block, uint64_t seed, size_t element, size_t in_bytes, size_t out_bytes,
                int is_in_place)
{
    block->is_librarys = random_below(&seed, 2) == 0;
    block->in = misaligned(&seed, 0, element);
    block->out = is_in_place ? block->in : misaligned(&seed, block->in + in_bytes, element);
    block->out_bytes = out_bytes;
    size_t longer = in_bytes > out_bytes ? in_bytes : out_bytes;
    block->bytes = (is_in_place ? block->in + longer : block->out + out_bytes) + GUARD;
    if (block->is_librarys)
        block->device = device_new(block->bytes);
    else
        CUDA_OK(cudaMalloc((void **)&block->device, block->bytes));
    CUDA_OK(cudaHostAlloc((void **)&block->image, 2 * block->bytes, 0));
    block->copy = block->image + block->bytes;
    memset(block->image, PATTERN, block->bytes);
}

void block_write(const block_t *block, cudaStream_t stream)
{
    CUDA_OK(
        cudaMemcpyAsync(block->device, block->image, block->bytes, cudaMemcpyHostToDevice, stream));
}

void block_fetch(const block_t *block, cudaStream_t stream)
{
    CUDA_OK(
        cudaMemcpyAsync(block->copy, block->device, block->bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
}

int block_is_intact(const block_t *block)
{
    size_t behind = block->out + block->out_bytes;
    return memcmp(block->copy, block->image, block->out) == 0 &&
           memcmp(block->copy + behind, block->image + behind, block->bytes - behind) == 0;
}

void block_free(block_t *block)
{
    if (block->is_librarys)
        (void)dtrain_mem_free(block->device);
    else
        CUDA_OK(cudaFree(block->device));
    CUDA_OK(cudaFreeHost(block->image));
}
