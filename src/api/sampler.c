/* sampler.c - which rank trains on which samples: dtrain.h says what each function does. */
#include "optim/sampler.h"

#include "base/memory.h"
#include "base/status.h"

static dtrain_status_t bad_size(const char *type, uint32_t found, size_t expected)
{
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s: struct_size is %u, not %zu: set it to sizeof",
                   type, found, expected);
}

static dtrain_status_t is_null(const char *what)
{
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s is NULL", what);
}

/* Rank and size of the world, where the caller names none. */
static dtrain_status_t complete(dtrain_sampler_desc_t *desc)
{
    if (desc->size != 0)
        return DTRAIN_OK;
    if (desc->rank != 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_sampler_desc_t: rank is %d, but size is 0", (int)desc->rank);
    desc->rank = dtrain_rank();
    desc->size = dtrain_size();
    if (desc->size < 1)
        return dt_fail(DTRAIN_ERR_NOT_INITIALIZED,
                       "dtrain_sampler_desc_t: size is 0, which stands for the world, but "
                       "dtrain_init has not been called");
    return DTRAIN_OK;
}

dtrain_status_t dtrain_sampler_create(const dtrain_sampler_desc_t *desc, dtrain_sampler_t **sampler)
{
    if (!desc || !sampler)
        return is_null(desc ? "the sampler's address" : "the description");
    if (desc->struct_size < sizeof *desc)
        return bad_size("dtrain_sampler_desc_t", desc->struct_size, sizeof *desc);
    dtrain_sampler_desc_t complete_desc = *desc;
    dtrain_status_t status = complete(&complete_desc);
    if (status != DTRAIN_OK)
        return status;
    dtrain_sampler_t *made = dt_alloc(sizeof *made);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a sampler");
    status = dt_sampler_make(&complete_desc, made);
    if (status == DTRAIN_OK)
        *sampler = made;
    else
        dt_free(made);
    return status;
}

void dtrain_sampler_destroy(dtrain_sampler_t *sampler)
{
    dt_free(sampler);
}

dtrain_status_t dtrain_sampler_next(dtrain_sampler_t *sampler, int64_t *samples, int64_t cap,
                                    dtrain_batch_t *batch)
{
    if (!sampler || !batch || (!samples && cap > 0))
        return is_null(!sampler ? "the sampler" : !batch ? "the batch" : "the array of samples");
    if (batch->struct_size < sizeof *batch)
        return bad_size("dtrain_batch_t", batch->struct_size, sizeof *batch);
    return dt_sampler_next(sampler, samples, cap, batch);
}

dtrain_status_t dtrain_sampler_seek(dtrain_sampler_t *sampler, int64_t epoch, int64_t batch)
{
    if (!sampler)
        return is_null("the sampler");
    return dt_sampler_seek(sampler, epoch, batch);
}

dtrain_status_t dtrain_sampler_save(const dtrain_sampler_t *sampler, dtrain_sampler_state_t *state)
{
    if (!sampler || !state)
        return is_null(sampler ? "the state" : "the sampler");
    if (state->struct_size < sizeof *state)
        return bad_size("dtrain_sampler_state_t", state->struct_size, sizeof *state);
    dt_sampler_save(sampler, state);
    return DTRAIN_OK;
}

dtrain_status_t dtrain_sampler_restore(dtrain_sampler_t *sampler,
                                       const dtrain_sampler_state_t *state)
{
    if (!sampler || !state)
        return is_null(sampler ? "the state" : "the sampler");
    if (state->struct_size < sizeof *state)
        return bad_size("dtrain_sampler_state_t", state->struct_size, sizeof *state);
    return dt_sampler_restore(sampler, state);
}
