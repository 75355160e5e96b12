/* Files of training states: any bytes, whose header's checksum is put right so that what is behind
 * it is reached. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <stdio.h>

#include "base/dtype.h"
#include "fuzz.h"
#include "optim/state_file.h"
#include "optim/state_format.h"

#define HEADER_LENGTH_AT 24
#define BYTES_MAX (1 << 20)

static void put_sum_right(uint8_t *bytes, size_t size)
{
    uint64_t length;
    if (size < DT_STATE_FIXED)
        return;
    memcpy(&length, bytes + HEADER_LENGTH_AT, sizeof length);
    if (length < DT_STATE_FIXED + sizeof(uint32_t) || length > size)
        return;
    uint32_t sum = (uint32_t)crc32_z(0, bytes, length - sizeof sum);
    memcpy(bytes + length - sizeof sum, &sum, sizeof sum);
}

/* Reads every tensor whole. */
static void read_all(const dt_state_t *state)
{
    for (size_t i = 0; i < dt_state_num_tensors(state); i++) {
        dt_state_info_t info = dt_state_info(state, i);
        int64_t count = dt_state_count(info.dtype, info.ndim, info.shape);
        size_t bytes = (size_t)count * dt_dtype_size(info.dtype);
        FUZZ_CHECK(count >= 0);
        if (bytes > BYTES_MAX)
            continue;
        dt_state_tensor_t tensor = {.name = info.name,
                                    .dtype = info.dtype,
                                    .ndim = info.ndim,
                                    .shape = info.shape,
                                    .end = count,
                                    .data = malloc(bytes + 1)};
        if (tensor.data)
            (void)dt_state_read(state, &tensor, 1);
        free(tensor.data);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    uint8_t *bytes = malloc(size + 1);
    int fd = memfd_create("state", MFD_CLOEXEC);
    if (bytes && fd >= 0) {
        memcpy(bytes, data, size);
        put_sum_right(bytes, size);
        FUZZ_CHECK(write(fd, bytes, size) == (ssize_t)size);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        dt_state_t *state = NULL;
        if (dt_state_open(path, &state) == DTRAIN_OK)
            read_all(state);
        dt_state_close(state);
    }
    if (fd >= 0)
        close(fd);
    free(bytes);
    return 0;
}
