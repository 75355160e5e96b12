#include "core/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "core/operand.h"
#include "core/pset_key.h"
#include "core/response_cache.h"
#include "core/sparse.h"

/* How a rank fares with an operation's output. Sent as int64. */
typedef enum fate {
    FATE_FINE = 0,
    FATE_NO_ROOM = 1,
    FATE_NO_MEMORY = 2,
    FATE_TOO_LARGE = 3,
    FATE_OVERLAP = 4
} fate_t;

typedef struct answer {
    int64_t fate, room, needed; /* fate_t; bytes */
} answer_t;

#define ANSWER_WORDS ((int64_t)(sizeof(answer_t) / sizeof(int64_t)))

/* Of how many ranks each is told all splits of all others. */
#define TOLD_RANKS_MAX 32

/* What a rank tells of an operation, before its rows: so many int64. */
enum { TOLD_ROOM, TOLD_CERTAIN, TOLD_ROWS };

typedef struct sizes {
    dt_staged_t base;
    dt_ranks_t ranks;
    int stage;
    int is_told; /* the ranks have told all before */
    int n;
    dt_operation_t **operations; /* n */
    int64_t *counts;             /* size; a count a rank of the collective under way */
    int64_t words;               /* that a rank tells in the first one */
    int64_t *sent, *received;    /* they, for or from each rank */
    answer_t *answers;           /* size * n, of each rank */
} sizes_t;

static void sizes_free(dt_staged_t *staged)
{
    sizes_t *sizes = (sizes_t *)staged;
    dt_free(sizes->operations);
    dt_free(sizes->counts);
    dt_free(sizes->sent);
    dt_free(sizes->received);
    dt_free(sizes->answers);
    dt_free(sizes);
}

/* Each rank gets `words` int64 of every rank. */
static void fill(sizes_t *sizes, dt_collective_t *collective, dt_collective_kind_t kind,
                 const void *in, void *out, int64_t words)
{
    for (int rank = 0; rank < sizes->ranks.size; rank++)
        sizes->counts[rank] = words;
    memset(collective, 0, sizeof *collective);
    collective->kind = kind;
    collective->reduction = (dt_reduction_t){.dtype = DTRAIN_DTYPE_I64,
                                             .op = DTRAIN_OP_SUM,
                                             .divisor = 1,
                                             .prescale = 1,
                                             .postscale = 1};
    collective->counts = sizes->counts;
    collective->recv_counts = kind == DT_EXCHANGE ? sizes->counts : NULL;
    collective->count = words * sizes->ranks.size;
    sizes->base.piece.in = in;
    sizes->base.piece.out = out;
    sizes->base.piece.count = collective->count;
    collective->pieces = &sizes->base.piece;
    collective->num_pieces = 1;
}

/* Rows of the output, and of what lies in it before this rank's; -1 when they cannot be counted. */
static int64_t add_up(const dt_operation_t *operation, dt_ranks_t ranks, int64_t *before)
{
    int64_t total = 0;
    for (int rank = 0; rank < ranks.size; rank++) {
        if (rank == ranks.rank)
            *before = total;
        if (__builtin_add_overflow(total, operation->splits[ranks.size + rank], &total))
            return -1;
    }
    return total;
}

/* Sees to the output, now that the ranks' rows are known. */
static answer_t arrange(dt_operation_t *operation, dt_ranks_t ranks)
{
    const dt_signature_t *signature = &operation->signature;
    int64_t row_bytes = dt_signature_row_count(signature) *
                        (int64_t)dt_dtype_size((dtrain_dtype_t)signature->dtype);
    answer_t answer = {.fate = FATE_FINE, .room = operation->room};
    if (signature->kind == DT_KIND_SPARSE) {
        if (dt_sparse_arrange(operation, ranks, &answer.needed))
            answer.fate = FATE_NO_MEMORY;
        else if (answer.needed < 0)
            answer.fate = FATE_TOO_LARGE;
        return answer;
    }
    int64_t before = 0, rows = add_up(operation, ranks, &before);
    if (rows < 0 || __builtin_mul_overflow(rows, row_bytes, &answer.needed)) {
        answer.fate = FATE_TOO_LARGE;
        return answer;
    }
    if (signature->kind == DT_KIND_GATHER && operation->root != ranks.rank)
        rows = answer.needed = 0;
    operation->out_rows = rows;
    if (answer.needed == 0)
        return answer;
    if (!operation->out) {
        operation->owned = dt_output_alloc_on(operation->gpu, operation->in, answer.needed);
        if (!operation->owned)
            answer.fate = FATE_NO_MEMORY;
        else
            operation->out = operation->owned->memory;
        return answer;
    }
    if (answer.needed > operation->room)
        answer.fate = FATE_NO_ROOM;
    else if ((signature->kind != DT_KIND_ALLGATHER ||
              operation->in != (char *)operation->out + before * row_bytes) &&
             dt_overlap(operation->in, operation->bytes, operation->out, answer.needed))
        answer.fate = FATE_OVERLAP;
    return answer;
}

/* ---- All told to all ------------------------------------------------------------------------ */

/* Of few ranks each tells all others all its rows and the room of its output, so that each finds
 * by itself what becomes of the operation on all. */
static int tells_all(dt_operation_t *const *operations, int n, int size)
{
    int has_splits = 0;
    for (int i = 0; i < n; i++)
        has_splits |= operations[i]->signature.kind == DT_KIND_ALLTOALL;
    return !has_splits || size <= TOLD_RANKS_MAX;
}

/* Rows that a rank tells of an operation. */
static int64_t num_rows(const dt_operation_t *operation, int size)
{
    return operation->signature.kind == DT_KIND_ALLTOALL ? size : 1;
}

/* Nothing can go wrong with this rank's output but that it has too little room. */
static int is_certain(const dt_operation_t *operation, int rank)
{
    if (operation->signature.kind == DT_KIND_GATHER && operation->root != rank)
        return 1;
    return operation->out && operation->signature.kind != DT_KIND_SPARSE &&
           !dt_overlap(operation->in, operation->bytes, operation->out, operation->room);
}

/* Returns behind what is told of the operation. */
static int64_t *tell_one(const dt_operation_t *operation, dt_ranks_t ranks, int64_t *to)
{
    int64_t rows = num_rows(operation, ranks.size);
    to[TOLD_ROOM] = operation->room;
    to[TOLD_CERTAIN] = is_certain(operation, ranks.rank);
    memcpy(to + TOLD_ROWS, operation->splits, (size_t)rows * sizeof *to);
    return to + TOLD_ROWS + rows;
}

static void tell(const sizes_t *sizes, int64_t *to)
{
    for (int i = 0; i < sizes->n; i++)
        to = tell_one(sizes->operations[i], sizes->ranks, to);
}

/* What becomes of the operation on a rank; `told` is what the first rank has told of it. */
static answer_t foresee(const sizes_t *sizes, const dt_operation_t *operation, const int64_t *told,
                        int rank)
{
    const dt_signature_t *signature = &operation->signature;
    int64_t row_bytes = dt_signature_row_count(signature) *
                        (int64_t)dt_dtype_size((dtrain_dtype_t)signature->dtype);
    int is_all = signature->kind == DT_KIND_ALLTOALL;
    answer_t answer = {.fate = FATE_FINE, .room = told[rank * sizes->words + TOLD_ROOM]};
    int64_t rows = 0;
    for (int from = 0; from < sizes->ranks.size; from++)
        if (__builtin_add_overflow(
                rows, told[from * sizes->words + TOLD_ROWS + (is_all ? rank : 0)], &rows))
            answer.fate = FATE_TOO_LARGE;
    if (__builtin_mul_overflow(rows, row_bytes, &answer.needed))
        answer.fate = FATE_TOO_LARGE;
    if (answer.fate == FATE_FINE && signature->kind == DT_KIND_GATHER && rank != operation->root)
        answer.needed = 0;
    if (answer.fate == FATE_FINE && answer.needed > answer.room)
        answer.fate = FATE_NO_ROOM;
    return answer;
}

/* Takes in what all have told. 1: so all is known; 0: they have to tell each other how it went. */
static int take_told(sizes_t *sizes)
{
    int size = sizes->ranks.size, me = sizes->ranks.rank, is_certain_on_all = 1;
    const int64_t *told = sizes->received;
    for (int i = 0; i < sizes->n; i++) {
        dt_operation_t *operation = sizes->operations[i];
        int64_t rows = num_rows(operation, size);
        for (int rank = 0; rank < size; rank++) {
            const int64_t *theirs = told + rank * sizes->words;
            operation->splits[size + rank] = theirs[TOLD_ROWS + (rows > 1 ? me : 0)];
            is_certain_on_all &= theirs[TOLD_CERTAIN] != 0;
            sizes->answers[rank * sizes->n + i] = foresee(sizes, operation, told, rank);
        }
        sizes->answers[me * sizes->n + i] = arrange(operation, sizes->ranks);
        told += TOLD_ROWS + rows;
    }
    return is_certain_on_all;
}

/* ---- Stages --------------------------------------------------------------------------------- */

/* Of many ranks each tells each other one its rows for it. */
static void tell_each(const sizes_t *sizes)
{
    for (int rank = 0; rank < sizes->ranks.size; rank++) {
        for (int i = 0; i < sizes->n; i++)
            sizes->sent[rank * sizes->n + i] = sizes->operations[i]->splits[rank];
    }
}

static void take_own(const sizes_t *sizes)
{
    for (int i = 0; i < sizes->n; i++) {
        dt_operation_t *operation = sizes->operations[i];
        for (int rank = 0; rank < sizes->ranks.size; rank++)
            operation->splits[sizes->ranks.size + rank] = sizes->received[rank * sizes->n + i];
        sizes->answers[sizes->ranks.rank * sizes->n + i] = arrange(operation, sizes->ranks);
    }
}

static dtrain_status_t sizes_next(dt_staged_t *staged, dt_collective_t *collective,
                                  dt_stage_t *stage)
{
    sizes_t *sizes = (sizes_t *)staged;
    int n = sizes->n, is_told = tells_all(sizes->operations, n, sizes->ranks.size);
    answer_t *own = &sizes->answers[sizes->ranks.rank * n];
    *stage = DT_STAGE_MORE;
    if (sizes->stage == 0 && sizes->is_told)
        sizes->stage = 1;
    switch (sizes->stage++) {
    case 0:
        if (is_told)
            tell(sizes, sizes->sent);
        else
            tell_each(sizes);
        fill(sizes, collective, is_told ? DT_ALLGATHER : DT_EXCHANGE, sizes->sent, sizes->received,
             sizes->words);
        break;
    case 1:
        if (!is_told) {
            take_own(sizes);
        } else if (take_told(sizes)) {
            *stage = DT_STAGE_NONE;
            break;
        }
        fill(sizes, collective, DT_ALLGATHER, own, sizes->answers, n * ANSWER_WORDS);
        break;
    default:
        *stage = DT_STAGE_NONE;
        break;
    }
    return DTRAIN_OK;
}

dt_staged_t *dt_sizes_create(dt_operation_t *const *operations, int n, dt_ranks_t ranks)
{
    sizes_t *sizes = dt_calloc(1, sizeof *sizes);
    if (!sizes)
        return NULL;
    sizes->words = n;
    if (tells_all(operations, n, ranks.size)) {
        sizes->words = 0;
        for (int i = 0; i < n; i++)
            sizes->words += TOLD_ROWS + num_rows(operations[i], ranks.size);
    }
    size_t words = (size_t)ranks.size * (size_t)sizes->words;
    sizes->base.next = sizes_next;
    sizes->base.free = sizes_free;
    sizes->ranks = ranks;
    sizes->n = n;
    sizes->operations = dt_alloc((size_t)n * sizeof *sizes->operations);
    sizes->counts = dt_alloc((size_t)ranks.size * sizeof *sizes->counts);
    sizes->sent = dt_alloc(words * sizeof *sizes->sent);
    sizes->received = dt_alloc(words * sizeof *sizes->received);
    sizes->answers = dt_calloc((size_t)ranks.size * (size_t)n, sizeof *sizes->answers);
    if (!sizes->operations || !sizes->counts || !sizes->sent || !sizes->received ||
        !sizes->answers) {
        sizes_free(&sizes->base);
        return NULL;
    }
    memcpy(sizes->operations, operations, (size_t)n * sizeof *sizes->operations);
    return &sizes->base;
}

size_t dt_sizes_told_bytes(const dt_operation_t *operation, int size)
{
    return (size_t)(TOLD_ROWS + num_rows(operation, size)) * sizeof(int64_t);
}

void dt_sizes_tell(const dt_operation_t *operation, dt_ranks_t ranks, int64_t *words)
{
    tell_one(operation, ranks, words);
}

dt_staged_t *dt_sizes_create_told(dt_operation_t *operation, dt_ranks_t ranks, void **told)
{
    sizes_t *sizes = (sizes_t *)dt_sizes_create(&operation, 1, ranks);
    if (!sizes)
        return NULL;
    sizes->is_told = 1;
    *told = sizes->received;
    return &sizes->base;
}

int dt_sizes_count(const dt_staged_t *staged)
{
    return ((const sizes_t *)staged)->n;
}

dt_operation_t *dt_sizes_operation(const dt_staged_t *staged, int i)
{
    return ((const sizes_t *)staged)->operations[i];
}

static void explain(const dt_operation_t *operation, int rank, const answer_t *answer, char *text,
                    size_t cap)
{
    char what[DT_KEY_TEXT_MAX];
    const char *key = dt_operation_key(operation);
    int used = snprintf(text, cap, "%s %s: ", dt_kind_name(operation->signature.kind),
                        dt_pset_key_describe(key, strlen(key), what, sizeof what));
    text += used;
    cap -= (size_t)used;
    switch ((fate_t)answer->fate) {
    case FATE_NO_ROOM:
        snprintf(text, cap,
                 "rank %d: the output has room for %" PRId64
                 " bytes (out_bytes), and needs %" PRId64,
                 rank, answer->room, answer->needed);
        break;
    case FATE_NO_MEMORY:
        snprintf(text, cap, "rank %d: no memory for an output of %" PRId64 " bytes", rank,
                 answer->needed);
        break;
    case FATE_OVERLAP:
        snprintf(text, cap,
                 "rank %d: input and output overlap, and the input is not at its place in the "
                 "output",
                 rank);
        break;
    default:
        snprintf(text, cap, "rank %d: the output would have more than 2^63 bytes", rank);
        break;
    }
}

dtrain_status_t dt_sizes_result(const dt_staged_t *staged, int i, char *text, size_t cap)
{
    const sizes_t *sizes = (const sizes_t *)staged;
    for (int rank = 0; rank < sizes->ranks.size; rank++) {
        const answer_t *answer = &sizes->answers[rank * sizes->n + i];
        if (answer->fate == FATE_FINE)
            continue;
        explain(sizes->operations[i], rank, answer, text, cap);
        return answer->fate == FATE_NO_MEMORY ? DTRAIN_ERR_OUT_OF_MEMORY
                                              : DTRAIN_ERR_INVALID_ARGUMENT;
    }
    return DTRAIN_OK;
}
