/*
 * test_random.c [SEED [N]] - N random programs (random_program.h) on tensors of a GPU: every kind
 * of operation with every type, alone and in groups, on sets that come and go, beside ranks that
 * have joined and ranks that slip, each rank in its own order. Inputs come to be in streams;
 * results are waited for in streams or on the host, and held against a model. Values are whole and
 * small, so that they are exact in any order. What fails is printed with its seed.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "device.h"
#include "random_block.h"
#include "random_program.h"

#define STREAMS 3
#define ROW_MAX 3000

/* Deadline of an operation that a rank does not submit. */
#define ABSENT_MS 40

/* The longest output: an alltoall to one rank, or the rows that all bring. */
#define ELEMENTS_MAX (6 * PROGRAM_RANKS_MAX * (ROW_MAX + 1))

/* An action that this rank has submitted. */
typedef struct submitted {
    dtrain_handle_t handle; /* 0: refused at once, or not at all */
    dtrain_status_t refused;
    int has_block, is_provided;
    block_t block;
    cudaStream_t stream;
    _Atomic int num_calls;
} submitted_t;

/* What a call is made of. */
typedef struct call {
    dtrain_tensor_t tensor;
    dtrain_options_t options;
    action_t said; /* by this rank */
    int64_t shape[2];
} call_t;

static int rank;
static program_t program;
static uint64_t seed; /* of this rank's own choices */
static cudaStream_t streams[STREAMS];
static dtrain_codec_t *fp16, *bf16, *topk;
static dtrain_pset_t everyone; /* nobody joins this set of all ranks */
static dtrain_pset_t ids[PROGRAM_SETS_MAX];
static dtrain_handle_t joins[PROGRAM_SETS_MAX];
static submitted_t submitted[PROGRAM_ACTIONS_MAX];
static double wanted[ELEMENTS_MAX];

static void fail_action(int round, const action_t *action, const char *what)
{
    char text[700];
    snprintf(text, sizeof text,
             "seed %llu, round %d: %s '%s' of %lld x %lld of type %d, op %d on set %d, slip %d of "
             "rank %d: %s",
             (unsigned long long)program.seed, round, dt_kind_name((uint8_t)action->kind),
             action->name, (long long)action->rows[rank], (long long)action->row,
             (int)action->dtype, (int)action->op, action->set, (int)action->slip, action->slip_rank,
             what);
    check_that(0, text, __FILE__, __LINE__);
}

static int once_in(uint64_t n)
{
    return random_below(&seed, n) == 0;
}

/* One of a few, or the default one. */
static cudaStream_t any_stream(void)
{
    uint64_t i = random_below(&seed, STREAMS + 1);
    return i < STREAMS ? streams[i] : NULL;
}

static void count_call(uint64_t handle, dtrain_status_t status, void *user)
{
    (void)handle, (void)status;
    atomic_fetch_add(&((submitted_t *)user)->num_calls, 1);
}

/* ---- Submission ----------------------------------------------------------------------------- */

static const dtrain_codec_t *codec_of(const action_t *action)
{
    if (!action->codec)
        return NULL;
    return strcmp(action->codec, "fp16") == 0   ? fp16
           : strcmp(action->codec, "bf16") == 0 ? bf16
                                                : topk;
}

/* Memory for it, with its input on the way to the GPU. Of what comes out right the output has just
 * the room that it needs. */
static void bring_input(const action_t *action, submitted_t *call)
{
    size_t element = dtrain_dtype_size(action->dtype), room = part_room(action);
    int64_t count = action->rows[rank] * action->row, rows;
    int64_t out = model_output(&program, action, rank, wanted, &rows);
    size_t in_bytes = (size_t)count * element, out_bytes = out > 0 ? (size_t)out * element : 0;
    size_t index_bytes = (size_t)action->rows[rank] * sizeof(int64_t);
    int is_in_place = action->in_place && part_may_be_in_place(action);
    if (action->slip != SLIP_NONE)
        in_bytes = out_bytes = room;
    if (action->kind == DT_KIND_SPARSE) /* indices, in the place of an output */
        out_bytes = index_bytes;
    /* Mostly memory of one kind on all ranks, which NCCL then has registered. */
    uint64_t draw = once_in(4) ? seed : action->salt;
    block_make(&call->block, draw, action->kind == DT_KIND_SPARSE ? sizeof(int64_t) : element,
               in_bytes, out_bytes, is_in_place);
    for (int64_t i = 0; i < count; i++)
        values_store(action->dtype, call->block.image + call->block.in, i,
                     model_input(action, rank, i));
    for (int64_t i = 0; i < action->rows[rank] && action->kind == DT_KIND_SPARSE; i++)
        values_store(DTRAIN_DTYPE_I64, call->block.image + call->block.out, i,
                     (double)model_index(action, rank, i));
    call->has_block = 1;
    call->stream = any_stream();
    block_write(&call->block, call->stream);
}

static void fill_options(call_t *call, const action_t *action, submitted_t *to)
{
    call->options = (dtrain_options_t){.struct_size = sizeof call->options,
                                       .op = call->said.op,
                                       .prescale = call->said.prescale,
                                       .postscale = call->said.postscale,
                                       .pset = ids[action->set],
                                       .priority = action->priority,
                                       .codec = codec_of(&call->said)};
    if (action->has_callback) {
        call->options.callback = count_call;
        call->options.user = to;
    }
    if (action->slip == SLIP_ABSENT)
        call->options.timeout_ms = ABSENT_MS;
    if (action->slip == SLIP_REFUSED && action->slip_rank == rank)
        call->options.timeout_ms = -5;
}

static void fill_call(call_t *call, const action_t *action, submitted_t *to)
{
    call->said = *action;
    if (action->slip_rank == rank)
        part_slip(&call->said);
    fill_options(call, action, to);
    if (action->kind == DT_KIND_BARRIER)
        return;
    bring_input(&call->said, to);
    call->shape[0] = call->said.kind == DT_KIND_SPARSE ? PROGRAM_SPARSE_ROWS : action->rows[rank];
    call->shape[1] = call->said.row;
    const block_t *block = &to->block;
    call->tensor = device_tensor(action->name, block->device + block->in,
                                 block->device + block->out, call->shape, call->said.dtype);
    call->tensor.ndim = 2;
    call->tensor.stream = to->stream;
    call->tensor.out_bytes = (int64_t)block->out_bytes;
    if (action->slip == SLIP_ROOM && action->slip_rank == rank)
        call->tensor.out_bytes = 1;
    to->is_provided =
        part_may_be_provided(action) && !action->has_room && action->slip == SLIP_NONE;
    if (to->is_provided) {
        call->tensor.out = NULL;
        call->tensor.out_bytes = 0;
    }
}

static dtrain_status_t submit_sparse(const call_t *call, dtrain_handle_t *handle)
{
    const dtrain_sparse_t tensor = {.struct_size = sizeof tensor,
                                    .ndim = 2,
                                    .name = call->tensor.name,
                                    .shape = call->shape,
                                    .indices = call->tensor.out,
                                    .values = call->tensor.in,
                                    .nnz = call->said.rows[rank],
                                    .dtype = call->said.dtype,
                                    .device = DTRAIN_DEVICE_CUDA,
                                    .stream = call->tensor.stream};
    return dtrain_sparse_allreduce_async(&tensor, &call->options, handle);
}

static dtrain_status_t submit_alltoall(const call_t *call, dtrain_handle_t *handle)
{
    const action_t *action = &call->said;
    int place = 0;
    while (action->members[place] != rank)
        place++;
    return dtrain_alltoall_async(&call->tensor, action->splits[place], action->num_members,
                                 &call->options, handle);
}

static dtrain_status_t submit(const call_t *call, dtrain_handle_t *handle)
{
    const action_t *action = &call->said;
    const dtrain_tensor_t *tensor = &call->tensor;
    const dtrain_options_t *options = &call->options;
    switch (action->kind) {
    case DT_KIND_BARRIER:
        return dtrain_barrier_async(options, handle);
    case DT_KIND_BROADCAST:
        return dtrain_broadcast_async(tensor, action->root, options, handle);
    case DT_KIND_REDUCE:
        return dtrain_reduce_async(tensor, action->root, options, handle);
    case DT_KIND_REDUCESCATTER:
        return dtrain_reducescatter_async(tensor, options, handle);
    case DT_KIND_ALLGATHER:
        return dtrain_allgather_async(tensor, options, handle);
    case DT_KIND_GATHER:
        return dtrain_gather_async(tensor, action->root, options, handle);
    case DT_KIND_SCATTER:
        return dtrain_scatter_async(tensor, action->root, options, handle);
    case DT_KIND_ALLTOALL:
        return submit_alltoall(call, handle);
    case DT_KIND_SPARSE:
        return submit_sparse(call, handle);
    case DT_KIND_TRANSFER:
        return rank == action->peer ? dtrain_recv_async(tensor, action->root, options, handle)
                                    : dtrain_send_async(tensor, action->peer, options, handle);
    default:
        return dtrain_allreduce_async(tensor, options, handle);
    }
}

static void submit_alone(const action_t *action, submitted_t *to)
{
    call_t call;
    fill_call(&call, action, to);
    to->refused = submit(&call, &to->handle);
}

static void submit_group(const round_t *round, int first)
{
    call_t calls[PROGRAM_ACTIONS_MAX];
    dtrain_tensor_t tensors[PROGRAM_ACTIONS_MAX];
    dtrain_handle_t handles[PROGRAM_ACTIONS_MAX] = {0};
    dtrain_status_t status;
    int n = 0;
    for (int i = first; i < round->num_actions && round->actions[i].group == first; i++, n++) {
        fill_call(&calls[n], &round->actions[i], &submitted[i]);
        tensors[n] = calls[n].tensor;
    }
    switch (round->actions[first].kind) {
    case DT_KIND_ALLGATHER:
        status = dtrain_grouped_allgather_async(tensors, n, &calls[0].options, handles);
        break;
    case DT_KIND_REDUCESCATTER:
        status = dtrain_grouped_reducescatter_async(tensors, n, &calls[0].options, handles);
        break;
    default:
        status = dtrain_grouped_allreduce_async(tensors, n, &calls[0].options, handles);
        break;
    }
    for (int i = 0; i < n; i++) {
        submitted[first + i].handle = handles[i];
        submitted[first + i].refused = status;
    }
}

/* ---- Results -------------------------------------------------------------------------------- */

/* Over NCCL an average in 16 bits, of a type or of a codec, is rounded at other places than in host
 * memory: before it is added up, or not at the end. */
static int is_as_wanted(const action_t *action, double value, double as_wanted)
{
    int is_rounded =
        action->op == DTRAIN_OP_AVERAGE && (action->dtype == DTRAIN_DTYPE_F16 || action->codec);
    return is_rounded ? fabs(value - as_wanted) <= 0x1p-5 * fmax(1, fabs(as_wanted))
                      : value == as_wanted;
}

static void check_values(int r, const action_t *action, const void *found, int64_t count)
{
    char text[100];
    for (int64_t i = 0; i < count; i++) {
        double value = values_load(action->dtype, found, i);
        if (is_as_wanted(action, value, wanted[i]))
            continue;
        snprintf(text, sizeof text, "element %lld of %lld is %g, not %g", (long long)i,
                 (long long)count, value, wanted[i]);
        fail_action(r, action, text);
        return;
    }
}

/* Fetches memory of the library's, in a stream. To be freed. */
static void *fetch(const void *device, size_t bytes, cudaStream_t stream)
{
    void *host;
    CUDA_OK(cudaHostAlloc(&host, bytes + 1, 0));
    if (bytes > 0)
        CUDA_OK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    CUDA_OK(cudaStreamSynchronize(stream));
    return host;
}

static void check_sparse(int r, const action_t *action, dtrain_handle_t handle, int64_t count,
                         cudaStream_t stream)
{
    static char found[PROGRAM_SPARSE_ROWS * (PROGRAM_SPARSE_ROW_MAX + 1) * 8];
    const int64_t *indices;
    const void *values;
    int64_t nnz;
    if (dtrain_sparse_output(handle, &indices, &values, &nnz) != DTRAIN_OK || nnz < 0 ||
        nnz > PROGRAM_SPARSE_ROWS) {
        fail_action(r, action, dtrain_last_error());
        return;
    }
    size_t bytes = (size_t)action->row * dtrain_dtype_size(action->dtype);
    char *rows = fetch(values, (size_t)nnz * bytes, stream);
    int64_t *numbers = indices ? fetch(indices, (size_t)nnz * sizeof *numbers, stream) : NULL;
    memset(found, 0, sizeof found);
    for (int64_t i = 0; i < nnz; i++) {
        int64_t row = numbers ? numbers[i] : i;
        if (row < 0 || row >= PROGRAM_SPARSE_ROWS)
            fail_action(r, action, "there is no such row");
        else
            memcpy(found + (size_t)row * bytes, rows + (size_t)i * bytes, bytes);
    }
    check_values(r, action, found, count);
    CUDA_OK(cudaFreeHost(rows));
    if (numbers)
        CUDA_OK(cudaFreeHost(numbers));
}

static void check_provided(int r, const action_t *action, dtrain_handle_t handle, int64_t count,
                           int64_t rows, cudaStream_t stream)
{
    const void *out = NULL;
    int64_t shape[DTRAIN_NDIM_MAX] = {0};
    int ndim = 0;
    if (dtrain_output(handle, &out, shape, &ndim) != DTRAIN_OK || ndim != 2 || shape[0] != rows ||
        shape[1] != action->row) {
        fail_action(r, action, "wrong shape");
        return;
    }
    char *found = fetch(out, (size_t)count * dtrain_dtype_size(action->dtype), stream);
    check_values(r, action, found, count);
    CUDA_OK(cudaFreeHost(found));
}

/* What is put into `stream` now comes behind the operation. */
static void check_data(int r, const action_t *action, const submitted_t *call, cudaStream_t stream)
{
    int64_t rows = 0;
    int64_t count = model_output(&program, action, rank, wanted, &rows);
    if (action->kind == DT_KIND_BARRIER)
        return;
    if (action->kind == DT_KIND_SPARSE)
        check_sparse(r, action, call->handle, count, stream);
    else if (call->is_provided)
        check_provided(r, action, call->handle, count, rows, stream);
    /* What has no elements is done without the GPU, so that its streams are not put in an order. */
    if (count <= 0 && action->rows[rank] * action->row == 0)
        CUDA_OK(cudaStreamSynchronize(call->stream));
    block_fetch(&call->block, stream);
    if (!block_is_intact(&call->block))
        fail_action(r, action, "bytes outside of the output were written");
    if (count > 0 && !call->is_provided && action->kind != DT_KIND_SPARSE)
        check_values(r, action, call->block.copy + call->block.out, count);
}

/* How it ends, waited for in a stream or by the host; and holds the data against the model. */
static dtrain_status_t finish(int r, const action_t *action, const submitted_t *call,
                              dtrain_status_t expected)
{
    cudaStream_t stream = any_stream();
    int by_stream = action->kind != DT_KIND_BARRIER && once_in(2);
    dtrain_status_t status =
        by_stream ? dtrain_stream_wait(call->handle, stream) : dtrain_wait(call->handle);
    if (status == DTRAIN_OK && expected == DTRAIN_OK)
        check_data(r, action, call, stream);
    return status == DTRAIN_OK && by_stream ? dtrain_wait(call->handle) : status;
}

static void check_result(int r, const round_t *round, int i)
{
    const action_t *action = &round->actions[i];
    submitted_t *call = &submitted[i];
    int now;
    char text[400];
    dtrain_status_t expected = model_status(&program, round, i, rank, &now);
    dtrain_status_t found = call->refused;
    if (call->handle && !now)
        found = finish(r, action, call, expected);
    if (found != expected) {
        snprintf(text, sizeof text, "%s, not %s: %.300s", dtrain_status_string(found),
                 dtrain_status_string(expected), dtrain_last_error());
        fail_action(r, action, text);
    }
    if (call->handle && action->has_callback) {
        (void)dtrain_wait(call->handle);
        if (atomic_load(&call->num_calls) != 1)
            fail_action(r, action, "the callback was not called once");
    }
    if (call->handle)
        CHECK_OK(dtrain_release(call->handle));
    if (call->has_block) {
        CUDA_OK(cudaStreamSynchronize(call->stream));
        block_free(&call->block);
    }
}

/* ---- Rounds --------------------------------------------------------------------------------- */

static void do_operations(int r)
{
    const round_t *round = &program.rounds[r];
    int order[PROGRAM_ACTIONS_MAX];
    memset(submitted, 0, sizeof submitted);
    part_draw_order(round, &seed, order);
    for (int k = 0; k < round->num_actions; k++) {
        int i = order[k];
        const action_t *action = &round->actions[i];
        if (!model_submits(action, rank) || (action->group >= 0 && action->group != i))
            continue;
        if (action->group == i)
            submit_group(round, i);
        else
            submit_alone(action, &submitted[i]);
    }
    part_draw_order(round, &seed, order);
    for (int k = 0; k < round->num_actions; k++) {
        if (model_submits(&round->actions[order[k]], rank))
            check_result(r, round, order[k]);
    }
}

static void check_join(int r, int set)
{
    int last = -1;
    CHECK_OK(dtrain_wait(joins[set]));
    CHECK_OK(dtrain_join_last_rank(joins[set], &last));
    CHECK(last >= 0 && part_may_be_last(&program, &program.rounds[r], set) >> last & 1);
    CHECK_OK(dtrain_release(joins[set]));
    joins[set] = 0;
}

static void do_joins(int r)
{
    const round_t *round = &program.rounds[r];
    for (int set = 0; set < PROGRAM_SETS_MAX; set++) {
        dtrain_options_t options = {.struct_size = sizeof options, .pset = ids[set]};
        if (round->joining[set] >> rank & 1)
            CHECK_OK(dtrain_join_async(&options, &joins[set]));
    }
    for (int set = 0; set < PROGRAM_SETS_MAX; set++) {
        if (round->completes[set] && joins[set])
            check_join(r, set);
    }
}

static void do_change(const round_t *round)
{
    int set = round->set, n = program.num_members[set], members[PROGRAM_RANKS_MAX];
    dtrain_pset_t none = -1;
    memcpy(members, program.members[set], sizeof members);
    if (round->kind == ROUND_REMOVE) {
        CHECK_OK(dtrain_pset_remove(ids[set]));
        ids[set] = 0;
    } else if (!round->has_slip) {
        CHECK_OK(dtrain_pset_add(members, n, &ids[set]));
    } else {
        if (rank == program.size - 1)
            members[0] = (members[0] + 1) % program.size; /* another list, or one that cannot be */
        dtrain_status_t status = dtrain_pset_add(members, n, &none);
        CHECK(status == DTRAIN_ERR_MISMATCH || status == DTRAIN_ERR_INVALID_ARGUMENT);
    }
}

static void meet(void)
{
    dtrain_options_t options = {.struct_size = sizeof options, .pset = everyone};
    dtrain_handle_t handle = 0;
    CHECK_OK(dtrain_barrier_async(&options, &handle));
    CHECK_OK(check_finish(handle));
}

static void run_program(uint64_t number)
{
    const program_limits_t limits = {.size = dtrain_size(), .longer = ROW_MAX, .all_types = 1};
    program_make(&program, number, &limits);
    program.join_divisor = DTRAIN_JOIN_DIVISOR_PRESENT;
    seed = number * 31 + (uint64_t)rank;
    for (int r = 0; r < program.num_rounds; r++) {
        if (program.rounds[r].kind != ROUND_OPERATIONS) {
            do_change(&program.rounds[r]);
            continue;
        }
        do_operations(r);
        /* Were the absent rank to join while others still wait, their operation would go on. */
        if (part_has_absent(&program.rounds[r]))
            meet();
        do_joins(r);
    }
    meet();
    for (int set = 1; set < PROGRAM_SETS_MAX; set++) {
        if (ids[set])
            CHECK_OK(dtrain_pset_remove(ids[set]));
        ids[set] = 0;
    }
}

static int prepare(void)
{
    int device = -1, all[PROGRAM_RANKS_MAX];
    rank = dtrain_rank();
    for (int r = 0; r < PROGRAM_RANKS_MAX; r++)
        all[r] = r;
    if (!CHECK(dtrain_size() <= PROGRAM_RANKS_MAX) || !CHECK_OK(dtrain_cuda_device(&device)))
        return -1;
    CUDA_OK(cudaSetDevice(device));
    for (int i = 0; i < STREAMS; i++)
        CUDA_OK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CHECK_OK(dtrain_codec_create("fp16", &fp16));
    CHECK_OK(dtrain_codec_create("bf16", &bf16));
    CHECK_OK(dtrain_codec_create("topk:1", &topk));
    CHECK_OK(dtrain_pset_add(all, dtrain_size(), &everyone));
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 10;
    char title[64];
    snprintf(title, sizeof title, "test_random %llu %llu", (unsigned long long)first,
             (unsigned long long)n);
    check_begin(title, 110);
    if (!CHECK_OK(check_init(40000)) || prepare() != 0)
        return check_end();
    for (uint64_t i = 0; i < n; i++)
        run_program(first + i);
    CHECK_OK(dtrain_shutdown());
    for (int i = 0; i < STREAMS; i++)
        CUDA_OK(cudaStreamDestroy(streams[i]));
    dtrain_codec_destroy(fp16);
    dtrain_codec_destroy(bf16);
    dtrain_codec_destroy(topk);
    return check_end();
}
