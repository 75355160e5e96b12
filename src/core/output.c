#include "core/output.h"

#include "base/memory.h"

dt_output_t *dt_output_alloc(int64_t bytes)
{
    if ((uint64_t)bytes > SIZE_MAX - sizeof(dt_output_t))
        return NULL;
    dt_output_t *output =
        dt_alloc_aligned(DT_OUTPUT_ALIGNMENT, sizeof(dt_output_t) + (size_t)bytes);
    if (output)
        output->next = NULL;
    return output;
}

void dt_output_free(dt_output_t *output)
{
    while (output) {
        dt_output_t *next = output->next;
        dt_free(output);
        output = next;
    }
}
