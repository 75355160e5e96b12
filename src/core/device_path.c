#include "core/device_path.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/device_split.h"
#include "core/staging.h"
#include "core/through_host.h"

/* What a rank tells in the first collective, and in the last. Sent as bytes. */
typedef struct hello {
    int32_t status; /* dtrain_status_t: of opening the device */
    int32_t reserved;
    dt_device_card_t card;
    char text[DT_ERROR_MAX];
} hello_t;

typedef struct offer {
    int32_t status; /* of making the id */
    int32_t reserved;
    dt_device_id_t id;
    char text[DT_ERROR_MAX];
} offer_t;

typedef enum step {
    STEP_SPLIT = -1, /* to be waited for, where the world's backend is being split */
    STEP_HELLO = 0,
    STEP_OFFER = 1,
    STEP_BEGIN = 2,
    STEP_CONNECT = 3,
    STEP_DONE = 4
} step_t;

typedef struct agreement {
    dt_staged_t base;
    dt_device_path_t *path;
    step_t step;
    int64_t *counts; /* a rank */
    hello_t *hellos; /* a rank */
    hello_t mine;
    offer_t offer;
} agreement_t;

struct dt_device_path {
    dt_gpu_t *gpu;
    dt_ranks_t ranks;
    const int *ranks_of;
    dt_device_split_t *split; /* NULL: none */
    dt_backend_t *backend;    /* NULL: staged, or not agreed on yet */
    dt_staging_pool_t pool;
    dtrain_status_t fault;
    char fault_text[DT_ERROR_MAX];
};

dt_device_path_t *dt_device_path_create(dt_gpu_t *gpu, dt_ranks_t ranks, const int *ranks_of,
                                        dt_device_split_t *split)
{
    dt_device_path_t *path = dt_calloc(1, sizeof *path);
    if (!path)
        return NULL;
    path->gpu = gpu;
    path->ranks = ranks;
    path->ranks_of = ranks_of;
    path->split = split;
    return path;
}

void dt_device_path_leave(dt_device_path_t *path, int clean)
{
    if (path && path->backend)
        path->backend->ops->destroy(path->backend, clean);
    if (path)
        path->backend = NULL;
}

void dt_device_path_free(dt_device_path_t *path)
{
    if (!path)
        return;
    dt_staging_pool_free(&path->pool);
    dt_free(path);
}

dtrain_status_t dt_device_path_fault(const dt_device_path_t *path, const char **text)
{
    *text = path->fault_text;
    return path->fault;
}

dt_backend_t *dt_device_path_backend(const dt_device_path_t *path)
{
    return path->backend;
}

dtrain_status_t dt_device_path_stage(dt_device_path_t *path, const dt_collective_t *collective,
                                     dt_staged_t **staged)
{
    return dt_staging_create(&path->pool, dt_gpu_peek(path->gpu), collective, path->ranks.rank,
                             path->ranks.size, staged);
}

dtrain_status_t dt_device_path_through_host(dt_device_path_t *path,
                                            dt_operation_t *const *operations, int n,
                                            dt_staged_t *inner, dt_staged_t **staged)
{
    dt_device_t *device = dt_gpu_peek(path->gpu);
    path->pool.device = device;
    return dt_through_host_create(&path->pool, device, operations, n, inner, staged);
}

/* ---- What the ranks' devices allow ---------------------------------------------------------- */

static void set_fault(dt_device_path_t *path, dtrain_status_t status, const char *text)
{
    path->fault = status;
    snprintf(path->fault_text, sizeof path->fault_text, "%s", text);
}

static const char *describe(const dt_device_path_t *path, int rank, char *text, int cap)
{
    return dt_topology_describe(path->gpu->topology, path->ranks_of[rank], text, cap);
}

/* The first rank whose hello says that something failed there. */
static int check_statuses(dt_device_path_t *path, const hello_t *hellos)
{
    char who[128], text[DT_ERROR_MAX];
    for (int rank = 0; rank < path->ranks.size; rank++) {
        if (hellos[rank].status == DTRAIN_OK)
            continue;
        snprintf(text, sizeof text, "%s: %.800s", describe(path, rank, who, sizeof who),
                 hellos[rank].text);
        set_fault(path, (dtrain_status_t)hellos[rank].status, text);
        return -1;
    }
    return 0;
}

static int is_same_device(const hello_t *a, const hello_t *b)
{
    return memcmp(a->card.uuid, b->card.uuid, sizeof a->card.uuid) == 0;
}

/* NCCL would hang or refuse; staging works. */
static int check_duplicates(dt_device_path_t *path, const hello_t *hellos)
{
    char one[128], other[128], text[DT_ERROR_MAX];
    for (int b = 1; b < path->ranks.size; b++) {
        for (int a = 0; a < b; a++) {
            if (!is_same_device(&hellos[a], &hellos[b]))
                continue;
            snprintf(text, sizeof text,
                     "%s and %s use one GPU (%s, GPU %d and %d there): give each rank its own with "
                     "cudaSetDevice, or set DTRAIN_GPU=staged, which shares a GPU without NCCL",
                     describe(path, a, one, sizeof one), describe(path, b, other, sizeof other),
                     hellos[a].card.name, hellos[a].card.device, hellos[b].card.device);
            set_fault(path, DTRAIN_ERR_INVALID_ARGUMENT, text);
            return -1;
        }
    }
    return 0;
}

static int check_versions(dt_device_path_t *path, const hello_t *hellos)
{
    char one[128], other[128], text[DT_ERROR_MAX];
    for (int rank = 1; rank < path->ranks.size; rank++) {
        const dt_device_card_t *a = &hellos[0].card, *b = &hellos[rank].card;
        if (a->nccl_version == b->nccl_version)
            continue;
        snprintf(text, sizeof text,
                 "%s has NCCL %d from %s, and %s has NCCL %d from %s: ranks need the same",
                 describe(path, 0, one, sizeof one), a->nccl_version, a->nccl_path,
                 describe(path, rank, other, sizeof other), b->nccl_version, b->nccl_path);
        set_fault(path, DTRAIN_ERR_MISMATCH, text);
        return -1;
    }
    return 0;
}

/* Whether the devices are to be connected. The same on all ranks. */
static int wants_backend(dt_device_path_t *path, const hello_t *hellos)
{
    dtrain_gpu_t setting = path->gpu->config->gpu;
    if (check_statuses(path, hellos) != 0 || setting == DTRAIN_GPU_STAGED)
        return 0;
    if (check_versions(path, hellos) != 0)
        return 0;
    if (hellos[0].card.nccl_version == 0) {
        dt_log(DTRAIN_LOG_WARN, "core", "there is no NCCL: tensors on GPUs go over host memory");
        return 0;
    }
    return setting == DTRAIN_GPU_SHARED || check_duplicates(path, hellos) == 0;
}

/* ---- The collectives ------------------------------------------------------------------------ */

static void agreement_free(dt_staged_t *staged)
{
    agreement_t *agreement = (agreement_t *)staged;
    dt_free(agreement->counts);
    dt_free(agreement->hellos);
    dt_free(agreement);
}

static void begin_collective(agreement_t *agreement, dt_collective_t *collective,
                             dt_collective_kind_t kind, const void *in, void *out, int64_t bytes)
{
    memset(collective, 0, sizeof *collective);
    collective->kind = kind;
    collective->reduction = (dt_reduction_t){
        .dtype = DTRAIN_DTYPE_U8, .op = DTRAIN_OP_SUM, .divisor = 1, .prescale = 1, .postscale = 1};
    collective->count = bytes;
    agreement->base.piece = (dt_piece_t){.in = in, .out = out, .count = bytes};
    collective->pieces = &agreement->base.piece;
    collective->num_pieces = 1;
}

/* Every rank gets every rank's hello. */
static void exchange_hellos(agreement_t *agreement, dt_collective_t *collective)
{
    int size = agreement->path->ranks.size;
    int64_t bytes = (int64_t)sizeof(hello_t);
    begin_collective(agreement, collective, DT_ALLGATHER, &agreement->mine, agreement->hellos,
                     bytes * size);
    for (int rank = 0; rank < size; rank++)
        agreement->counts[rank] = bytes;
    collective->counts = agreement->counts;
}

static void note_failure(int32_t *status, char *text, dtrain_status_t failure)
{
    *status = failure;
    snprintf(text, DT_ERROR_MAX, "%s", dt_last_error());
}

static void say_hello(agreement_t *agreement)
{
    dt_device_t *device;
    dtrain_status_t status = dt_gpu_open(agreement->path->gpu, NULL, &device);
    if (status == DTRAIN_OK)
        device->ops->describe(device, &agreement->mine.card);
    else
        note_failure(&agreement->mine.status, agreement->mine.text, status);
}

static void make_offer(agreement_t *agreement)
{
    dt_device_t *device = dt_gpu_peek(agreement->path->gpu);
    if (agreement->path->ranks.rank != 0)
        return;
    dtrain_status_t status = device->ops->make_id(device, &agreement->offer.id);
    if (status != DTRAIN_OK)
        note_failure(&agreement->offer.status, agreement->offer.text, status);
}

/* Takes the offer; what fails here alone is told in the last collective. */
static void begin_connect(agreement_t *agreement)
{
    dt_device_path_t *path = agreement->path;
    dt_device_t *device = dt_gpu_peek(path->gpu);
    agreement->mine.status = agreement->offer.status;
    memcpy(agreement->mine.text, agreement->offer.text, sizeof agreement->mine.text);
    if (agreement->offer.status != DTRAIN_OK)
        return;
    dtrain_status_t status = device->ops->connect(device, &agreement->offer.id, path->ranks.rank,
                                                  path->ranks.size, &path->backend);
    if (status != DTRAIN_OK)
        note_failure(&agreement->mine.status, agreement->mine.text, status);
}

static void conclude(dt_device_path_t *path)
{
    if (path->fault != DTRAIN_OK)
        dt_device_path_leave(path, 0);
    if (path->ranks.rank == 0)
        dt_log(DTRAIN_LOG_INFO, "core", "tensors on GPUs: %s",
               path->fault != DTRAIN_OK ? path->fault_text
               : path->backend          ? "over NCCL"
                                        : "staged through host memory");
}

/* The outcome is the same on all ranks. */
static void take_split(agreement_t *agreement, dt_stage_t *stage)
{
    dt_device_path_t *path = agreement->path;
    if (!path->split->is_decided) {
        *stage = DT_STAGE_WAIT;
        return;
    }
    path->backend = path->split->backend;
    path->split->backend = NULL;
    if (path->backend)
        *stage = DT_STAGE_NONE;
    else
        agreement->step = STEP_HELLO;
}

/* By now the other ranks wait inside NCCL for this one: an error here ends the world. */
static dtrain_status_t await_connection(agreement_t *agreement, dt_stage_t *stage)
{
    dt_device_path_t *path = agreement->path;
    dt_device_t *device = dt_gpu_peek(path->gpu);
    dtrain_status_t status = device->ops->connected(device, path->backend);
    *stage = status == DTRAIN_IN_PROGRESS ? DT_STAGE_WAIT : DT_STAGE_NONE;
    if (status == DTRAIN_IN_PROGRESS)
        return DTRAIN_OK;
    if (status == DTRAIN_OK)
        conclude(path);
    return status;
}

static dtrain_status_t agreement_next(dt_staged_t *staged, dt_collective_t *collective,
                                      dt_stage_t *stage)
{
    agreement_t *agreement = (agreement_t *)staged;
    *stage = DT_STAGE_MORE;
    if (agreement->step == STEP_SPLIT)
        take_split(agreement, stage);
    if (*stage != DT_STAGE_MORE)
        return DTRAIN_OK;
    switch (agreement->step) {
    case STEP_SPLIT:
        break;
    case STEP_HELLO:
        say_hello(agreement);
        exchange_hellos(agreement, collective);
        agreement->step = STEP_OFFER;
        return DTRAIN_OK;
    case STEP_OFFER:
        if (!wants_backend(agreement->path, agreement->hellos))
            break;
        make_offer(agreement);
        begin_collective(agreement, collective, DT_BROADCAST, &agreement->offer, &agreement->offer,
                         (int64_t)sizeof agreement->offer);
        agreement->step = STEP_BEGIN;
        return DTRAIN_OK;
    case STEP_BEGIN: /* nobody waits for one that could not begin */
        begin_connect(agreement);
        exchange_hellos(agreement, collective);
        agreement->step = STEP_CONNECT;
        return DTRAIN_OK;
    case STEP_CONNECT:
        if (check_statuses(agreement->path, agreement->hellos) != 0)
            break;
        agreement->step = STEP_DONE;
        *stage = DT_STAGE_WAIT;
        return DTRAIN_OK;
    case STEP_DONE:
        return await_connection(agreement, stage);
    }
    conclude(agreement->path);
    *stage = DT_STAGE_NONE;
    return DTRAIN_OK;
}

dt_staged_t *dt_device_path_agree(dt_device_path_t *path)
{
    agreement_t *agreement = dt_calloc(1, sizeof *agreement);
    if (!agreement)
        return NULL;
    size_t size = (size_t)path->ranks.size;
    agreement->base.next = agreement_next;
    agreement->base.free = agreement_free;
    agreement->path = path;
    agreement->step = path->split && path->split->is_asked ? STEP_SPLIT : STEP_HELLO;
    agreement->counts = dt_alloc(size * sizeof *agreement->counts);
    agreement->hellos = dt_calloc(size, sizeof *agreement->hellos);
    if (!agreement->counts || !agreement->hellos) {
        agreement_free(&agreement->base);
        return NULL;
    }
    return &agreement->base;
}
