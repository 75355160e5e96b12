#include "core/agree.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/pset_key.h"
#include "observe/checksum.h"

/* Submits and waits; *handle is to be released, also after an error of the wait. */
static dtrain_status_t run(dt_runtime_t *runtime, dt_submission_t *submission, const char *call,
                           dtrain_handle_t *handle)
{
    *handle = 0;
    dtrain_status_t status = dt_runtime_may_block(runtime, call);
    submission->will_wait = 1;
    if (status == DTRAIN_OK)
        status = dt_runtime_submit(runtime, submission, handle);
    return status == DTRAIN_OK ? dt_runtime_wait(runtime, *handle, -1) : status;
}

/* ---- Stopping together --------------------------------------------------------------------- */

dtrain_status_t dt_agree_stop(dt_runtime_t *runtime, int local, int *any)
{
    int32_t wants = local != 0;
    dtrain_handle_t handle;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = DT_NAME_STOP,
                              .in = &wants,
                              .out = &wants,
                              .dtype = DTRAIN_DTYPE_I32};
    dtrain_options_t options = {.struct_size = sizeof options, .op = DTRAIN_OP_MAX};
    dt_submission_t submission = {
        .kind = DT_KIND_ALLREDUCE, .tensor = &tensor, .options = &options, .is_own = 1};
    if (!any)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_agree_stop: `any` is NULL");
    dtrain_status_t status = run(runtime, &submission, "dtrain_agree_stop", &handle);
    if (handle != 0)
        dt_runtime_release(runtime, handle);
    if (status == DTRAIN_OK)
        *any = wants > 0;
    return status;
}

/* ---- Tensors that should be the same -------------------------------------------------------- */

/* What ranks tell each other of a tensor. */
typedef struct digest {
    uint64_t identity; /* of its name, type and length */
    uint64_t content;
} digest_t;

#define DIGEST_WORDS ((int64_t)(sizeof(digest_t) / sizeof(int64_t)))

/* Of bytes in host memory, or on this rank's GPU when its stream is done. */
static dtrain_status_t checksum(dt_runtime_t *runtime, const dtrain_tensor_t *tensor, size_t bytes,
                                uint64_t *sum)
{
    char why[DT_ERROR_MAX];
    void *copy = NULL;
    if (tensor->device == DTRAIN_DEVICE_CPU || bytes == 0) {
        *sum = dt_checksum(tensor->in, bytes);
        return DTRAIN_OK;
    }
    dtrain_status_t status = dt_gpu_fetch(&runtime->gpu, tensor->stream, tensor->in, bytes, &copy);
    if (status == DTRAIN_OK) {
        *sum = dt_checksum(copy, bytes);
        dt_free(copy);
        return DTRAIN_OK;
    }
    snprintf(why, sizeof why, "%s", dt_last_error());
    return dt_fail(status, "dtrain_check_equal: '%.200s': %.700s", tensor->name, why);
}

static dtrain_status_t digest(dt_runtime_t *runtime, const dtrain_tensor_t *tensor,
                              digest_t *digest_out)
{
    if (tensor->struct_size < offsetof(dtrain_tensor_t, out_bytes) || !tensor->name)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_check_equal: a tensor has no name, or a wrong struct_size");
    size_t size = dt_dtype_size(tensor->dtype);
    dt_signature_t signature = {.dtype = (uint8_t)tensor->dtype, .ndim = (uint8_t)tensor->ndim};
    int is_shape =
        tensor->ndim == 0 || (tensor->ndim > 0 && tensor->ndim <= DTRAIN_NDIM_MAX && tensor->shape);
    for (int i = 0; is_shape && i < tensor->ndim; i++)
        signature.shape[i] = tensor->shape[i];
    int64_t count = size > 0 && is_shape ? dt_signature_count(&signature) : -1;
    if (count < 0 || (count > 0 && !tensor->in))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_check_equal: '%.200s' has no element type, shape or input",
                       tensor->name);
    if (tensor->device != DTRAIN_DEVICE_CPU && tensor->device != DTRAIN_DEVICE_CUDA)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_check_equal: '%.200s': there is no device %d", tensor->name,
                       tensor->device);
    uint64_t identity[3] = {dt_hash(tensor->name, strlen(tensor->name)), (uint64_t)tensor->dtype,
                            (uint64_t)count};
    digest_out->identity = dt_checksum(identity, sizeof identity);
    return checksum(runtime, tensor, (size_t)count * size, &digest_out->content);
}

/* What came from the ranks of the set. */
typedef struct survey {
    const digest_t *digests; /* of each rank behind those of the ones before */
    int64_t *first;          /* by rank: the index of its first, and behind the last how many */
    int size;
    int *ranks; /* of the world, by their numbers in the set */
    dt_rank_set_t odd;
} survey_t;

/* The value of most ranks; of several the lowest rank's. */
static uint64_t majority(const survey_t *survey, int64_t index, int is_content)
{
    uint64_t best = 0;
    int most = 0;
    for (int i = 0; i < survey->size; i++) {
        const digest_t *one = &survey->digests[survey->first[i] + index];
        uint64_t value = is_content ? one->content : one->identity;
        int count = 0;
        for (int j = 0; j < survey->size; j++) {
            const digest_t *other = &survey->digests[survey->first[j] + index];
            count += (is_content ? other->content : other->identity) == value;
        }
        if (count > most) {
            most = count;
            best = value;
        }
        if (2 * most > survey->size)
            break;
    }
    return best;
}

/* Finds those that have another value than the others. Returns how many. */
static int find_odd(survey_t *survey, int64_t index, int is_content)
{
    uint64_t usual = majority(survey, index, is_content);
    dt_rank_set_clear(&survey->odd);
    for (int i = 0; i < survey->size; i++) {
        const digest_t *one = &survey->digests[survey->first[i] + index];
        if ((is_content ? one->content : one->identity) != usual)
            dt_rank_set_add(&survey->odd, survey->ranks[i]);
    }
    return survey->odd.count;
}

static dtrain_status_t compare_counts(survey_t *survey)
{
    char text[128];
    int64_t usual = survey->first[1];
    for (int i = 1; i < survey->size; i++) {
        int64_t count = survey->first[i + 1] - survey->first[i];
        if (count != usual)
            return dt_fail(DTRAIN_ERR_MISMATCH,
                           "dtrain_check_equal: rank %d gave %lld tensors, rank %d %lld",
                           survey->ranks[0], (long long)usual, survey->ranks[i], (long long)count);
    }
    for (int64_t t = 0; t < usual; t++) {
        if (find_odd(survey, t, 0) > 0)
            return dt_fail(DTRAIN_ERR_MISMATCH,
                           "dtrain_check_equal: tensor %lld of %lld has another name, type or "
                           "length on %s than on the others",
                           (long long)t + 1, (long long)usual,
                           dt_rank_set_describe(&survey->odd, 0, text, sizeof text));
    }
    return DTRAIN_OK;
}

/* All ranks have the same tensors. */
static dtrain_status_t compare_contents(survey_t *survey, const dtrain_tensor_t *tensors, int n)
{
    char odd[128];
    int num_different = 0, first = -1;
    for (int t = n - 1; t >= 0; t--) {
        if (find_odd(survey, t, 1) == 0)
            continue;
        num_different++;
        first = t;
    }
    if (first < 0)
        return DTRAIN_OK;
    find_odd(survey, first, 1);
    return dt_fail(
        DTRAIN_ERR_MISMATCH,
        "dtrain_check_equal: '%.200s' (tensor %d of %d) is not the same on all ranks: %s "
        "differs from the others; %d tensor(s) differ in all",
        tensors[first].name, first + 1, n, dt_rank_set_describe(&survey->odd, 0, odd, sizeof odd),
        num_different);
}

static dtrain_status_t look_into(dt_runtime_t *runtime, dtrain_pset_t pset, dtrain_handle_t handle,
                                 survey_t *survey, const dtrain_tensor_t *tensors, int n)
{
    const void *data;
    int rank, size;
    dtrain_status_t status =
        dt_pset_describe(&runtime->psets, pset, &rank, &size, survey->ranks, survey->size);
    if (status == DTRAIN_OK)
        status = dt_runtime_output(runtime, handle, &data, NULL, NULL);
    if (status == DTRAIN_OK)
        status = dt_runtime_recv_splits(runtime, handle, survey->first + 1, survey->size);
    if (status != DTRAIN_OK)
        return status;
    survey->digests = data;
    for (int i = 0; i < survey->size; i++)
        survey->first[i + 1] = survey->first[i] + survey->first[i + 1] / DIGEST_WORDS;
    status = compare_counts(survey);
    return status == DTRAIN_OK ? compare_contents(survey, tensors, n) : status;
}

static dtrain_status_t digest_all(dt_runtime_t *runtime, const dtrain_tensor_t *tensors, int n,
                                  digest_t *digests)
{
    dtrain_status_t status = DTRAIN_OK;
    if (n < 1 || !tensors)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_check_equal: %d tensors%s", n,
                       tensors ? "" : " at NULL");
    for (int i = 0; i < n && status == DTRAIN_OK; i++)
        status = digest(runtime, &tensors[i], &digests[i]);
    return status;
}

/* What is `refused` on this rank, the others are told why. */
static dtrain_status_t exchange(dt_runtime_t *runtime, const dtrain_tensor_t *tensors, int n,
                                const dtrain_options_t *options, const digest_t *digests,
                                survey_t *survey, dtrain_status_t refused)
{
    char why[DT_ERROR_MAX] = "";
    if (refused != DTRAIN_OK)
        snprintf(why, sizeof why, "%s", dt_last_error());
    int64_t words = n * DIGEST_WORDS;
    dtrain_tensor_t tensor = {.struct_size = sizeof tensor,
                              .name = DT_NAME_EQUAL,
                              .in = digests,
                              .ndim = 1,
                              .shape = &words,
                              .dtype = DTRAIN_DTYPE_I64};
    dt_submission_t submission = {
        .kind = DT_KIND_ALLGATHER, .tensor = &tensor, .options = options, .is_own = 1};
    submission.refusal = refused != DTRAIN_OK ? why : NULL;
    dtrain_handle_t handle;
    dtrain_status_t status = run(runtime, &submission, "dtrain_check_equal", &handle);
    if (status == DTRAIN_OK)
        status = look_into(runtime, options->pset, handle, survey, tensors, n);
    if (handle != 0)
        dt_runtime_release(runtime, handle);
    return refused == DTRAIN_OK ? status : dt_fail(refused, "%s", why);
}

dtrain_status_t dt_check_equal(dt_runtime_t *runtime, const dtrain_tensor_t *tensors, int n,
                               const dtrain_options_t *options)
{
    dtrain_options_t own = {.struct_size = sizeof own};
    if (options) {
        own.pset = options->pset;
        own.timeout_ms = options->timeout_ms;
    }
    survey_t survey = {0};
    int rank;
    dtrain_status_t status =
        dt_pset_describe(&runtime->psets, own.pset, &rank, &survey.size, NULL, 0);
    if (status == DTRAIN_OK) /* before a GPU is waited for */
        status = dt_runtime_may_block(runtime, "dtrain_check_equal");
    if (status != DTRAIN_OK)
        return status;
    size_t size = (size_t)survey.size;
    digest_t *digests = dt_calloc((size_t)(n > 0 ? n : 1), sizeof *digests);
    survey.first = dt_calloc(size + 1, sizeof *survey.first);
    survey.ranks = dt_calloc(size, sizeof *survey.ranks);
    if (!digests || !survey.first || !survey.ranks ||
        dt_rank_set_init(&survey.odd, runtime->world.topology.size))
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory to compare %d tensors", n);
    else
        status = digest_all(runtime, tensors, n, digests);
    status = exchange(runtime, tensors, n, &own, digests, &survey, status);
    dt_rank_set_free(&survey.odd);
    dt_free(survey.first);
    dt_free(survey.ranks);
    dt_free(digests);
    return status;
}
