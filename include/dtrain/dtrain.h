/*
 * dtrain.h - the public C API of libdtrain.
 *
 * libdtrain makes a training program written for one process run on many: the program
 * submits gradient tensors by name, and the library reduces them over all ranks while the
 * program goes on computing. A complete program:
 *
 *     #include <dtrain/dtrain.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         if (dtrain_init(NULL) != DTRAIN_OK) {
 *             fprintf(stderr, "%s\n", dtrain_last_error());
 *             return 1;
 *         }
 *         float gradient[4] = {1, 2, 3, 4};
 *         dtrain_status_t status = dtrain_allreduce("gradient", gradient, gradient, 4,
 *                                                   DTRAIN_DTYPE_F32, DTRAIN_OP_AVERAGE);
 *         if (status != DTRAIN_OK)
 *             fprintf(stderr, "rank %d: %s\n", dtrain_rank(), dtrain_last_error());
 *         dtrain_shutdown();
 *         return status != DTRAIN_OK;
 *     }
 *
 * Run it as it is and it is a world of one rank; run it with `mpirun -np N` and it is a
 * world of N. Link with `pkg-config --libs dtrain`, or with the CMake target dtrain::dtrain.
 *
 * Rules that hold throughout
 *
 *   Threads    Every function may be called from any thread, except dtrain_init and
 *              dtrain_shutdown, which must not run at the same time as each other. Callbacks
 *              run where their type says.
 *   Status     Functions return dtrain_status_t: 0 is success, negative is an error, positive
 *              is "not yet". dtrain_last_error() has the text of this thread's last error. An
 *              output parameter is written only on success.
 *   Matching   An operation is matched across ranks by its name. The order in which ranks
 *              submit different names does not matter. One name may be in flight once a rank.
 *   Buffers    A buffer is lent to the library from the call until its handle is done; when the
 *              world is gone before (see Errors), until dtrain_shutdown, since a peer may still
 *              be writing. Input and output do not overlap, except where an operation says how it
 *              works in place.
 *   Rows       Operations that put together or share out deal in rows: a row is one index of the
 *              first dimension, so a tensor of shape [5, 3] has 5 rows of 3 elements. Where the
 *              library shares d rows out over n ranks, each gets d / n, and the first d mod n
 *              ranks get one more, in rank order.
 *   Counts     Counts are elements, 64-bit. NULL is a valid buffer where the count is 0.
 *   Same bits  The order in which ranks' values are added depends on rank numbers alone:
 *              the same program on the same number of ranks gives the same bits on every
 *              rank and in every run, however tensors are fused or cut into chunks.
 *   Errors     What goes wrong on one rank (a shape that differs, an argument refused, a rank
 *              that dies) reaches every rank that takes part, as an error that names the
 *              tensor and the ranks. The next operation works, unless the world is gone
 *              (DTRAIN_ERR_RANK_LOST, DTRAIN_ERR_ABORTED, or a timeout after the data began
 *              to move): then every later call fails with the same status.
 *   Structs    Public structs start with struct_size; set it to sizeof. Zero means default in
 *              every other field, so `dtrain_options_t o = {.struct_size = sizeof o};` is a
 *              complete set of defaults. Fields are only ever appended.
 *
 * Everything here is available since version 0.1 unless it says otherwise.
 */
#ifndef DTRAIN_DTRAIN_H
#define DTRAIN_DTRAIN_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/version.h>

#if defined(__GNUC__)
#define DTRAIN_API __attribute__((visibility("default")))
#else
#define DTRAIN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ------------------------------------------------------------------------- */

/* What a call or an operation came to. Numbers are never reused. */
typedef enum dtrain_status {
    DTRAIN_OK = 0,
    DTRAIN_IN_PROGRESS = 1,              /* not done yet; nothing is wrong */
    DTRAIN_ERR_INVALID_ARGUMENT = -1,    /* an argument, here or on the rank that is named */
    DTRAIN_ERR_NOT_INITIALIZED = -2,     /* before dtrain_init or after dtrain_shutdown */
    DTRAIN_ERR_ALREADY_INITIALIZED = -3, /* dtrain_init a second time; the world is unharmed */
    DTRAIN_ERR_DUPLICATE_NAME = -4,      /* the name is in flight already on this rank */
    DTRAIN_ERR_MISMATCH = -5,            /* ranks called the same name with other arguments */
    DTRAIN_ERR_TIMEOUT = -6,             /* the operation's deadline passed */
    DTRAIN_ERR_RANK_LOST = -7,           /* a rank died or left; the world is gone */
    DTRAIN_ERR_SHUT_DOWN = -8,           /* a rank that is needed has called dtrain_shutdown */
    DTRAIN_ERR_INVALID_HANDLE = -9,      /* released already, or never a handle */
    DTRAIN_ERR_OUT_OF_MEMORY = -10,      /* memory, descriptors or threads ran out */
    DTRAIN_ERR_UNSUPPORTED = -11,        /* valid, but not in this build or for this type */
    DTRAIN_ERR_CONFIG = -12,             /* a setting; the text names the variable */
    DTRAIN_ERR_COMMUNICATION = -13,      /* MPI or the operating system reported an error */
    DTRAIN_ERR_INTERNAL = -14,           /* a defect of libdtrain: please report it */
    DTRAIN_ERR_FORKED = -15,             /* called in a child made by fork after dtrain_init */
    DTRAIN_ERR_ABORTED = -16,            /* a rank called dtrain_abort; the world is gone */
    DTRAIN_ERR_IN_CALLBACK = -17,        /* a call that would block, made in a callback */
    DTRAIN_ERR_FILE = -18                /* a file: the system's reason, or what is wrong in it */
} dtrain_status_t;

/*
 * A short fixed text for a status, such as "operation timed out". Never NULL; an unknown
 * number gives "unknown status". Does not block.
 */
DTRAIN_API const char *dtrain_status_string(dtrain_status_t status);

/*
 * The text of the last error that a libdtrain call returned on this thread, with names, ranks
 * and values; "" when there was none. The pointer is valid until the next failing call on the
 * same thread. Works before dtrain_init too.
 */
DTRAIN_API const char *dtrain_last_error(void);

/* ---- Version and build -------------------------------------------------------------- */

/* The library's version as major * 10000 + minor * 100 + patch: compare with DTRAIN_VERSION. */
DTRAIN_API int dtrain_version(void);

/* The library's version as text, such as "0.1.0". */
DTRAIN_API const char *dtrain_version_string(void);

typedef enum dtrain_feature {
    DTRAIN_FEATURE_MPI = 1,
    DTRAIN_FEATURE_CUDA = 2,
    DTRAIN_FEATURE_NCCL = 3
} dtrain_feature_t;

/* 1 when the feature was built in, 0 when it was not or is unknown. */
DTRAIN_API int dtrain_built(dtrain_feature_t feature);

/* ---- Configuration ------------------------------------------------------------------ */

/*
 * Settings of a world, for dtrain_init. Start from dtrain_config_init, then set fields or call
 * dtrain_config_set. Each field can also be set by its variable in the environment
 * (DTRAIN_FUSION_THRESHOLD and so on), which wins over the struct, so that whoever starts a job
 * has the last word. docs/config.md lists all, with ranges. Settings that all ranks must share
 * are taken from rank 0.
 */
typedef struct dtrain_config {
    uint32_t struct_size;
    int32_t log_level;           /* dtrain_log_level_t; 0: DTRAIN_LOG_WARN */
    int64_t fusion_threshold;    /* bytes a fused bucket holds at most; 0: default; -1: none */
    int64_t fusion_tensor_limit; /* bytes of the largest tensor that is packed; 0: default */
    int32_t timeout_ms;          /* deadline of an operation; 0: 60,000; -1: none */
    int32_t stall_warning_ms;    /* warn when ranks are missing for as long; 0: 2,000; -1: no */
    int32_t init_timeout_ms;     /* deadline of dtrain_init; 0: 60,000 */
    int32_t spin_us;             /* busy-wait before sleeping; 0: default; -1: none */
    int32_t mpi_threads;         /* dtrain_mpi_threads_t */
    char backend[32];            /* "auto" (also ""), "mpi", or "self": a world of one */
    char network_interface[64];  /* for connections between nodes, as "eth0"; "": any */
    int32_t shared_memory;       /* dtrain_shared_memory_t */
    char isa[16];            /* the best instruction set used: "auto" (also ""), "scalar", ... */
    int32_t heartbeat_ms;    /* how often ranks show that they run; 0: 500 */
    int32_t link_timeout_ms; /* a node that answers nothing for as long is lost; 0: 1,200 */
    int32_t join_divisor;    /* dtrain_join_divisor_t */
    char process_sets[512];  /* that exist from the start: "0,1;2-5" has sets 1 and 2; "": none */
    char flight_dir[256];    /* where the last operations go when the world ends in error; "": no */
    char flight_signal[16];  /* on which they are written too, as "usr1"; "": none */
    int32_t gpu;             /* dtrain_gpu_t */
} dtrain_config_t;

/* What DTRAIN_OP_AVERAGE divides by while ranks have joined; all ranks take rank 0's. */
typedef enum dtrain_join_divisor {
    DTRAIN_JOIN_DIVISOR_PRESENT = 0, /* the ranks that took part: the average of what they gave, as
                                        every other reduction is one of what they gave */
    DTRAIN_JOIN_DIVISOR_ALL = 1      /* all ranks of the process set, as if those that have joined
                                        had given zeros: every sample then has the same weight */
} dtrain_join_divisor_t;

/* Whether the ranks of a node share memory; all ranks take rank 0's. */
typedef enum dtrain_shared_memory {
    DTRAIN_SHARED_MEMORY_ON = 0, /* where the system allows it */
    DTRAIN_SHARED_MEMORY_OFF = 1 /* MPI carries all data, sockets all control messages */
} dtrain_shared_memory_t;

/* How tensors on GPUs travel; all ranks take rank 0's. Nothing of CUDA is loaded before a program
 * has something for a GPU. */
typedef enum dtrain_gpu {
    DTRAIN_GPU_AUTO = 0,   /* over NCCL; through host memory where there is no NCCL */
    DTRAIN_GPU_STAGED = 1, /* through host memory; several ranks may use one GPU */
    DTRAIN_GPU_SHARED = 2, /* over NCCL though several ranks use one GPU: NCCL has to be told */
    DTRAIN_GPU_OFF = 3     /* not at all: UNSUPPORTED */
} dtrain_gpu_t;

/* How an application that initialised MPI itself goes on using it (docs/threading.md). */
typedef enum dtrain_mpi_threads {
    DTRAIN_MPI_THREADS_MULTIPLE = 0,  /* it may call MPI at any time: MPI_THREAD_MULTIPLE needed */
    DTRAIN_MPI_THREADS_SERIALIZED = 1 /* it makes no MPI call while libdtrain is initialised:
                                         MPI_THREAD_SERIALIZED is enough */
} dtrain_mpi_threads_t;

/*
 * Sets every field of `config` to its default. `struct_size` is the caller's sizeof
 * (dtrain_config_t). INVALID_ARGUMENT for NULL or a size that no version had.
 */
DTRAIN_API dtrain_status_t dtrain_config_init(dtrain_config_t *config, size_t struct_size);

/*
 * Sets one field from text, as the environment would: `key` is the field's name
 * ("fusion_threshold"), `value` is its text ("64MB", "off", "1.5s"). CONFIG when the key is
 * unknown (the text has the nearest known one) or the value cannot be read or is out of range.
 */
DTRAIN_API dtrain_status_t dtrain_config_set(dtrain_config_t *config, const char *key,
                                             const char *value);

/* ---- Lifecycle ---------------------------------------------------------------------- */

/*
 * Joins the world: all processes that the MPI launcher started, or this process alone without
 * a launcher. Every rank must call it. MPI is initialised when the application has not done
 * so. Starts two background threads. `config` may be NULL for the defaults; it is copied.
 *
 * Blocks until all ranks are here, or init_timeout_ms. Errors: ALREADY_INITIALIZED (the world
 * is unharmed), CONFIG, TIMEOUT, RANK_LOST (a rank of this node died meanwhile), COMMUNICATION,
 * OUT_OF_MEMORY; UNSUPPORTED when the application initialised MPI with too low a thread level,
 * when MPI was finalized already, or when the launcher belongs to another MPI than the library.
 * After an error nothing is left initialised. May be called again after dtrain_shutdown.
 */
DTRAIN_API dtrain_status_t dtrain_init(const dtrain_config_t *config);

/*
 * Leaves the world. Operations of this rank that are still pending end with SHUT_DOWN; other
 * ranks' operations that need this rank do so too. Waits, asleep, until every rank that lives
 * has called it, so that nobody's data is cut off; then all threads, memory and descriptors of
 * the library are given back. Handles not released are reported in the log. MPI is finalized
 * at exit, and only when libdtrain initialised it.
 *
 * NOT_INITIALIZED when there is no world. RANK_LOST when a rank died; everything is given back
 * all the same.
 */
DTRAIN_API dtrain_status_t dtrain_shutdown(void);

/* 1 between a successful dtrain_init and dtrain_shutdown, else 0. */
DTRAIN_API int dtrain_is_initialized(void);

/*
 * Tells every rank that this one cannot go on: all pending and later operations on all ranks
 * fail with ABORTED and a text that holds this rank, `code` and `why` (which may be NULL). The
 * process itself goes on; dtrain_shutdown still gives everything back.
 */
DTRAIN_API dtrain_status_t dtrain_abort(int code, const char *why);

/* ---- Topology ------------------------------------------------------------------------ */

/*
 * Rank and size in the world; among the ranks of this node (local); and among the ranks with
 * this local rank on all nodes (cross). -1 when not initialised.
 */
DTRAIN_API int dtrain_rank(void);
DTRAIN_API int dtrain_size(void);
DTRAIN_API int dtrain_local_rank(void);
DTRAIN_API int dtrain_local_size(void);
DTRAIN_API int dtrain_cross_rank(void);
DTRAIN_API int dtrain_cross_size(void);

/* 1 when every node has the same number of ranks, else 0; -1 when not initialised. */
DTRAIN_API int dtrain_is_homogeneous(void);

/* ---- Memory ------------------------------------------------------------------------- */

/*
 * Allocates `bytes` bytes of zeroed memory, aligned to 4096 bytes, that tensors are best kept in:
 * within a node it is shared with the other ranks, which then reduce it where it lies, without a
 * copy. Any part of it may be used as any tensor. A local call: ranks may allocate different
 * amounts. `device` is DTRAIN_DEVICE_CPU, or DTRAIN_DEVICE_CUDA for memory of this rank's GPU
 * (dtrain_cuda.h), with which CUDA starts unless it has. bytes = 0 gives a pointer that must be
 * freed as well.
 *
 * INVALID_ARGUMENT, UNSUPPORTED (device), OUT_OF_MEMORY, NOT_INITIALIZED, FORKED. Does not block.
 */
DTRAIN_API dtrain_status_t dtrain_mem_alloc(void **memory, size_t bytes, int device);

/*
 * Gives memory of dtrain_mem_alloc back; NULL is nothing. No operation may be in flight in it. On a
 * GPU it may wait for a call of NCCL's, for at most 3 s. dtrain_shutdown frees what was not freed:
 * it may not be touched afterwards. INVALID_ARGUMENT for any other pointer.
 */
DTRAIN_API dtrain_status_t dtrain_mem_free(void *memory);

/* ---- Tensors and operations ----------------------------------------------------------- */

/* Element types. Numbers are never reused; 0 is no type, so that a forgotten one is an error. */
typedef enum dtrain_dtype {
    DTRAIN_DTYPE_U8 = 1,
    DTRAIN_DTYPE_I8 = 2,
    DTRAIN_DTYPE_I32 = 3,
    DTRAIN_DTYPE_I64 = 4,
    DTRAIN_DTYPE_F16 = 5, /* IEEE 754 binary16; sums accumulate in fp32, rounded once */
    DTRAIN_DTYPE_F32 = 6,
    DTRAIN_DTYPE_F64 = 7,
    DTRAIN_DTYPE_BF16 = 8, /* bfloat16; sums accumulate in fp32, rounded once */
    DTRAIN_DTYPE_BOOL = 9, /* one byte; 0 is false, all else is true; results are 0 or 1 */
    DTRAIN_DTYPE_U16 = 10,
    DTRAIN_DTYPE_I16 = 11
} dtrain_dtype_t;

/* Bytes of one element; 0 for an unknown type. */
DTRAIN_API size_t dtrain_dtype_size(dtrain_dtype_t dtype);

/* The type's name, such as "float32"; "unknown" for an unknown type. */
DTRAIN_API const char *dtrain_dtype_name(dtrain_dtype_t dtype);

/*
 * Reductions. All are taken elementwise over the ranks of the process set.
 *
 *   SUM, PRODUCT   Integers wrap around, as C's unsigned types do. bool: or, and.
 *   AVERAGE        The sum, divided by the number of ranks before it is rounded to the type:
 *                  the average of two fp16 values of 40000 is 40000. Integer averages are
 *                  exact sums (int64 wraps), divided with truncation towards zero. Not for
 *                  bool: UNSUPPORTED.
 *   MIN, MAX       NaN on any rank gives NaN. bool: and, or.
 *   ADASUM         Adds what two gradients do not have in common and averages what they have:
 *                  a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2), so that orthogonal gradients add
 *                  and equal ones average. Pairs are combined along the same tree, with a.b and
 *                  the norms taken over the whole tensor; all of it in double, rounded once.
 *                  allreduce of floating-point types only: else UNSUPPORTED. A rank needs memory
 *                  for the tensor in double, and once more as it is, while it runs.
 *
 * Values of ranks are combined along a balanced binary tree over rank numbers, the same for
 * every element: ((x0 + x1) + (x2 + x3)) + (x4 + x5) for six ranks.
 * On several nodes that each hold the same number of ranks, but not a power of two of consecutive
 * ones, 32- and 64-bit floats are combined by such a tree within each node, and then by one over
 * the nodes: then too the order depends on rank numbers and nodes alone.
 */
typedef enum dtrain_op {
    DTRAIN_OP_SUM = 0,
    DTRAIN_OP_AVERAGE = 1,
    DTRAIN_OP_MIN = 2,
    DTRAIN_OP_MAX = 3,
    DTRAIN_OP_PRODUCT = 4,
    DTRAIN_OP_ADASUM = 5
} dtrain_op_t;

/* The reduction's name, such as "average"; "unknown" for an unknown one. */
DTRAIN_API const char *dtrain_op_name(dtrain_op_t op);

/* A process set: the ranks that take part in an operation. 0 is the world. */
typedef int32_t dtrain_pset_t;
#define DTRAIN_PSET_WORLD 0

/* `device` of a tensor in host memory. */
#define DTRAIN_DEVICE_CPU 0

/* `device` of a tensor in the memory of this rank's GPU: see dtrain_cuda.h. */
#define DTRAIN_DEVICE_CUDA 1

/* The longest name of a tensor in bytes, without its final zero. */
#define DTRAIN_NAME_MAX 4096

/* The most dimensions a tensor has. */
#define DTRAIN_NDIM_MAX 16

/*
 * A named tensor, dense and row-major. The struct, the name and the shape are copied by the
 * call; `in` and `out` are borrowed until the handle is done.
 */
typedef struct dtrain_tensor {
    uint32_t struct_size;
    int32_t ndim;     /* 0 to DTRAIN_NDIM_MAX; 0 is a scalar: one element, shape unused */
    const char *name; /* UTF-8, 1 to DTRAIN_NAME_MAX bytes; "dtrain." at its start is reserved */
    const void *in;   /* input, of `device`; read where the operation says so */
    void *out;        /* output; where the operation says so, NULL lets the library provide it */
    const int64_t *shape; /* ndim extents, each >= 0, in elements */
    dtrain_dtype_t dtype;
    int32_t device; /* DTRAIN_DEVICE_CPU or DTRAIN_DEVICE_CUDA, the same on all ranks */
    void *stream;   /* on a GPU: the cudaStream_t in which `in` comes to be and `out` becomes free;
                       NULL: the default stream. Not used for host memory */
    /* Bytes that `out` has room for. Read by the operations whose output's size is known only once
     * all ranks have called (allgather, alltoall, gather), where 0 is no room; others check it
     * unless it is 0. A caller that was built before there was this field counts as 0. */
    int64_t out_bytes;
} dtrain_tensor_t;

/*
 * Called once when an operation is done, with its status and `user`, on libdtrain's background
 * thread or on a thread that is in a blocking call (in a world of one: in the call that submits).
 * In it dtrain_poll, dtrain_output and dtrain_release work for the handle, and operations may be
 * submitted; calls that would block return DTRAIN_ERR_IN_CALLBACK, and dtrain_shutdown too. It must
 * not block by other means, since nothing else moves meanwhile. When dtrain_wait returns, the
 * operation's callback has. A call that is refused at once has no callback.
 */
typedef void (*dtrain_callback_fn_t)(uint64_t handle, dtrain_status_t status, void *user);

/*
 * A codec makes a tensor travel in fewer bytes; see Codecs. A program that has one of its own fills
 * in this struct and leaves it, and what it points to, as it is until the last operation with it is
 * done. Calls come from any one thread at a time for one operation, from several for several; they
 * must not call libdtrain, and what they do may depend on their arguments alone, since all ranks
 * must come to the same result.
 */
typedef struct dtrain_codec {
    uint32_t struct_size;
    uint32_t flags;   /* DTRAIN_CODEC_FEEDBACK, or 0 */
    const char *name; /* 1 to DTRAIN_CODEC_NAME_MAX bytes; ranks must agree on it */
    /* Bytes that `count` elements take, exactly: the same on all ranks. -1: too many elements. */
    int64_t (*coded_bytes)(const struct dtrain_codec *codec, int64_t count);
    /* Writes in[0 … count-1] as coded_bytes bytes to `out`, which is aligned to 8 bytes. */
    void (*encode)(const struct dtrain_codec *codec, const float *in, int64_t count, void *out);
    /* Reads them back. 0, or -1 when the bytes cannot have come from encode: the world then ends
     * with INTERNAL. */
    int (*decode)(const struct dtrain_codec *codec, const void *in, int64_t count, float *out);
    void *user; /* the program's own */
} dtrain_codec_t;

/* What encoding leaves out of a tensor is kept by the tensor's name, and added to it next time. */
#define DTRAIN_CODEC_FEEDBACK 1u

#define DTRAIN_CODEC_NAME_MAX 23

/* How an operation is done. NULL in its place means: all defaults. */
typedef struct dtrain_options {
    uint32_t struct_size;
    dtrain_op_t op;                /* allreduce, reduce, reduce-scatter */
    double prescale;               /* factor on every input before the reduction; 0 means 1 */
    double postscale;              /* factor on the result before it is rounded; 0 means 1 */
    dtrain_pset_t pset;            /* the ranks that take part, of which this is one */
    int32_t priority;              /* see below; 0 is the usual one */
    int32_t timeout_ms;            /* deadline; 0: the configured one; -1: none */
    uint32_t reserved;             /* 0 */
    dtrain_callback_fn_t callback; /* called when the operation is done; or NULL */
    void *user;                    /* for the callback */
    const dtrain_codec_t *codec;   /* how an allreduce travels; NULL: as it is */
} dtrain_options_t;

/*
 * Priority: of the operations that all ranks have submitted and that have not been begun, those
 * with a higher priority go first, in the same order on all ranks; those with the same one in the
 * order in which they became complete. When a program uses priorities, no more is begun at a time
 * than the data path needs to stay busy, so that what comes later can still overtake. Ranks may
 * give one operation different priorities; the highest counts. A high priority for the gradients
 * that the next step needs first (those of the first layers) lets it begin earlier. It changes no
 * bits.
 */

/*
 * An operation that was submitted. 0 is never a handle. Handles carry a generation, so one that
 * was released is an error (INVALID_HANDLE) for ever, never another operation.
 */
typedef uint64_t dtrain_handle_t;

/*
 * Submits an allreduce: when it is done, `out` on every rank of the set holds the reduction of
 * all ranks' `in`, elementwise. Type, shape, op, prescale and postscale must be the same on all
 * ranks. Scales other than 1 on integers are applied in double and truncated towards zero; on
 * bool they are UNSUPPORTED. In place is out == in.
 *
 * Does not block. On success *handle must be waited for or polled, then released. Errors now:
 * INVALID_ARGUMENT, UNSUPPORTED, DUPLICATE_NAME, NOT_INITIALIZED, OUT_OF_MEMORY, FORKED, or the
 * world's own error once it is gone. An argument refused here also fails the operation on the
 * ranks that did submit it. Errors at wait: MISMATCH, INVALID_ARGUMENT (of another rank),
 * TIMEOUT, SHUT_DOWN, RANK_LOST, ABORTED, COMMUNICATION; then the content of `out` is
 * undefined.
 */
DTRAIN_API dtrain_status_t dtrain_allreduce_async(const dtrain_tensor_t *tensor,
                                                  const dtrain_options_t *options,
                                                  dtrain_handle_t *handle);

/*
 * Submits a broadcast: when it is done, `out` on every rank holds `in` of rank `root`. On the
 * root `out` may be NULL or `in`; on other ranks `in` is not read and may be NULL. Type, shape
 * and root must be the same on all ranks. Blocking and errors as dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_broadcast_async(const dtrain_tensor_t *tensor, int root,
                                                  const dtrain_options_t *options,
                                                  dtrain_handle_t *handle);

/*
 * Submits a reduction to one rank: when it is done, `out` on rank `root` holds what an allreduce
 * would give, bit for bit; on other ranks `out` is not touched and may be NULL. Type, shape, op,
 * scales and root must be the same on all ranks. In place is out == in, on the root. Blocking and
 * errors as dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_reduce_async(const dtrain_tensor_t *tensor, int root,
                                               const dtrain_options_t *options,
                                               dtrain_handle_t *handle);

/*
 * Submits a reduce-scatter: the rows of what an allreduce would give, bit for bit, are shared out
 * over the ranks (see Rows); `shape` is that of the whole tensor, and `out` receives this rank's
 * rows. Type, shape, op and scales must be the same on all ranks; the op is not ADASUM. At least
 * one dimension, else INVALID_ARGUMENT.
 *
 * `out` NULL: the library provides the memory, which dtrain_output gives and dtrain_release frees.
 * In place is out == in + the place of this rank's rows. Blocking and errors as
 * dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_reducescatter_async(const dtrain_tensor_t *tensor,
                                                      const dtrain_options_t *options,
                                                      dtrain_handle_t *handle);

/*
 * Submits an allgather: when it is done, every rank has the rows of all ranks' `in`, in rank order.
 * `shape` is that of this rank's `in`; the first extent may differ by rank, and be 0. Type, number
 * of dimensions and all other extents must be the same on all ranks. At least one dimension, else
 * INVALID_ARGUMENT.
 *
 * `out` NULL: the library provides the memory, which dtrain_output gives, with the shape, and
 * dtrain_release frees. Otherwise `out` has room for `out_bytes`; should that be too little on any
 * rank, the operation fails on all with INVALID_ARGUMENT before data moves, as it does with
 * OUT_OF_MEMORY when a rank has no memory for its output. dtrain_recv_splits gives the rows that
 * came from each rank. In place is in == out + the place of this rank's rows. Blocking and other
 * errors as dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_allgather_async(const dtrain_tensor_t *tensor,
                                                  const dtrain_options_t *options,
                                                  dtrain_handle_t *handle);

/*
 * Submits a gather: as an allgather, but only rank `root` gets the rows of all ranks. `out` is not
 * used on other ranks, where dtrain_output gives NULL and a first extent of 0; dtrain_recv_splits
 * tells the rows of each rank everywhere. Type, number of dimensions, all extents but the first,
 * and root must be the same on all ranks. Not in place. Outputs, blocking and errors as
 * dtrain_allgather_async.
 */
DTRAIN_API dtrain_status_t dtrain_gather_async(const dtrain_tensor_t *tensor, int root,
                                               const dtrain_options_t *options,
                                               dtrain_handle_t *handle);

/*
 * Submits a scatter: the rows of rank `root`'s `in` are shared out over the ranks (see Rows), and
 * `out` receives this rank's. `shape` is that of the whole tensor, on every rank; `in` is read on
 * the root only, and may be NULL elsewhere. Type, shape and root must be the same on all ranks. At
 * least one dimension, else INVALID_ARGUMENT. `out` NULL: as dtrain_reducescatter_async. Not in
 * place. Blocking and errors as dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_scatter_async(const dtrain_tensor_t *tensor, int root,
                                                const dtrain_options_t *options,
                                                dtrain_handle_t *handle);

/*
 * Submits an all-to-all: `splits[r]` rows of this rank's `in`, behind those for lower ranks, go to
 * rank r, and what comes from the ranks is put together in rank order. `shape` is that of this
 * rank's `in`; `splits` has `n` entries, one a rank of the set, each >= 0, that add up to the first
 * extent, and is copied. `splits` NULL (`n` is then ignored): the same for each, and the first
 * extent must be divisible by the number of ranks. Type, number of dimensions and all extents but
 * the first must be the same on all ranks. At least one dimension. What does not hold is
 * INVALID_ARGUMENT on every rank.
 *
 * dtrain_recv_splits gives the rows that came from each rank. Not in place. Outputs, blocking and
 * errors as dtrain_allgather_async.
 */
DTRAIN_API dtrain_status_t dtrain_alltoall_async(const dtrain_tensor_t *tensor,
                                                 const int64_t *splits, int n,
                                                 const dtrain_options_t *options,
                                                 dtrain_handle_t *handle);

/*
 * Submit one end of a transfer between two ranks: `in` of the rank that sends to `peer` goes to
 * `out` of the rank that receives from `peer`. The two ends are matched by their name, and must
 * agree on each other, on type and on shape; MISMATCH otherwise, on those who submitted it.
 * INVALID_ARGUMENT when `peer` is this rank or none. `out` is not used by a send, nor `in` by a
 * receive. In the data path transfers have their place among the operations of all ranks, so every
 * rank that has not shut down takes notice; nobody else needs to submit anything. Blocking and
 * errors as dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_send_async(const dtrain_tensor_t *tensor, int peer,
                                             const dtrain_options_t *options,
                                             dtrain_handle_t *handle);
DTRAIN_API dtrain_status_t dtrain_recv_async(const dtrain_tensor_t *tensor, int peer,
                                             const dtrain_options_t *options,
                                             dtrain_handle_t *handle);

/*
 * Submit `n` tensors as one group: all are agreed on before the first is begun, and when one fails
 * (another shape on some rank, an argument refused, a deadline) all fail, with a text that names
 * the one. The names and their order are part of what ranks must agree on. `options` hold for each
 * tensor. `handles` receives n handles, each to be waited for and released; on error none.
 * INVALID_ARGUMENT for n < 1. Otherwise as the call for one tensor.
 */
DTRAIN_API dtrain_status_t dtrain_grouped_allreduce_async(const dtrain_tensor_t *tensors, int n,
                                                          const dtrain_options_t *options,
                                                          dtrain_handle_t *handles);
DTRAIN_API dtrain_status_t dtrain_grouped_allgather_async(const dtrain_tensor_t *tensors, int n,
                                                          const dtrain_options_t *options,
                                                          dtrain_handle_t *handles);
DTRAIN_API dtrain_status_t dtrain_grouped_reducescatter_async(const dtrain_tensor_t *tensors, int n,
                                                              const dtrain_options_t *options,
                                                              dtrain_handle_t *handles);

/* Some rows of a tensor: a gradient that is zero elsewhere. Copied by the call, all of it; indices
 * and values on a GPU when all that is in `stream` is done, so that the call blocks. */
typedef struct dtrain_sparse {
    uint32_t struct_size;
    int32_t ndim;           /* of the whole tensor: 1 to DTRAIN_NDIM_MAX */
    const char *name;       /* as in dtrain_tensor_t */
    const int64_t *shape;   /* of the whole tensor */
    const int64_t *indices; /* which rows: nnz numbers from 0 to shape[0] - 1, in any order */
    const void *values;     /* the rows, one behind the other */
    int64_t nnz;            /* how many; may be 0, and differ by rank; at most 2^31 - 1 */
    dtrain_dtype_t dtype;
    int32_t device; /* of indices and values: DTRAIN_DEVICE_CPU or DTRAIN_DEVICE_CUDA */
    void *stream;   /* on a GPU: see dtrain_cuda.h; else NULL */
} dtrain_sparse_t;

/*
 * Submits an allreduce (op SUM or AVERAGE) of a tensor of which each rank has some rows, the others
 * being zero. When it is done, dtrain_sparse_output gives every rank the rows that any rank had. A
 * row that a rank gives several times counts as their sum. Name, type, shape of the whole tensor,
 * op and scales must be the same on all ranks.
 *
 * Rows are collected by an allgather of indices and values; where these would be no shorter than
 * the whole tensor, it is reduced as a whole. That changes no bit of a row: each is what an
 * allreduce of the whole tensor gives, but for the sign of a zero. Blocking and errors as
 * dtrain_allreduce_async, and OUT_OF_MEMORY at wait, on all ranks, when one has no memory for the
 * output; IN_CALLBACK for rows on a GPU.
 */
DTRAIN_API dtrain_status_t dtrain_sparse_allreduce_async(const dtrain_sparse_t *tensor,
                                                         const dtrain_options_t *options,
                                                         dtrain_handle_t *handle);

/*
 * The result of a sparse allreduce that is done: *nnz rows, one behind the other in *values, and
 * their numbers in rising order in *indices. *indices NULL: the rows are those of the whole tensor,
 * 0 to *nnz - 1. Memory of the library's, where the rows were, valid until the handle is released;
 * *values is NULL when there is nothing. IN_PROGRESS when it is not done, its status when it
 * failed, INVALID_HANDLE; INVALID_ARGUMENT for another operation, or NULL. Does not block.
 */
DTRAIN_API dtrain_status_t dtrain_sparse_output(dtrain_handle_t handle, const int64_t **indices,
                                                const void **values, int64_t *nnz);

/*
 * Submits a barrier: it is done when every rank of the set has submitted it. A rank's barriers
 * are matched in their order; several may be in flight. Operations submitted before it need
 * not be done. Blocking and errors as dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_barrier_async(const dtrain_options_t *options,
                                                dtrain_handle_t *handle);

/*
 * For a layer above this one, such as a binding to another language, that finds fault with what a
 * program gave it: tells the other ranks of process set `pset` that this rank will not submit the
 * operations `names[0]` to `names[n - 1]`, so that theirs of these names fail instead of waiting.
 * Several names are those of one group. Their handles end with INVALID_ARGUMENT and the text
 * "rank R: why", R being this rank, once all ranks have submitted or refused. n is 1 or more;
 * names and `why` are copied, and none of them is NULL. Whatever has a name of its own can be
 * refused, so not a barrier or a join.
 *
 * Returns INVALID_ARGUMENT with `why` as this thread's dtrain_last_error(), as the refused call
 * would have; NOT_INITIALIZED, FORKED. Any thread; does not block.
 */
DTRAIN_API dtrain_status_t dtrain_refuse(const char *const *names, int n, dtrain_pset_t pset,
                                         const char *why);

/*
 * Blocking shorthands: submit, wait, release. `name`, buffers, `count` (elements, one
 * dimension), `dtype`, `op`, `root` and `peer` as above. They return what the wait returns.
 *
 * dtrain_allgather takes `count` elements from each rank, the same number from all, and `out` holds
 * count * size. dtrain_reducescatter takes `count` elements in all, and `out` holds this rank's
 * share. dtrain_alltoall sends count / size elements to each rank, and `out` holds count.
 * dtrain_gather takes `count` elements from each rank, and `out` holds count * size on the root.
 * dtrain_scatter shares out `count` elements of the root's `in`, and `out` holds this rank's share.
 * For outputs that are the library's, use the asynchronous calls.
 */
DTRAIN_API dtrain_status_t dtrain_allreduce(const char *name, const void *in, void *out,
                                            int64_t count, dtrain_dtype_t dtype, dtrain_op_t op);
DTRAIN_API dtrain_status_t dtrain_broadcast(const char *name, void *buffer, int64_t count,
                                            dtrain_dtype_t dtype, int root);
DTRAIN_API dtrain_status_t dtrain_reduce(const char *name, const void *in, void *out, int64_t count,
                                         dtrain_dtype_t dtype, dtrain_op_t op, int root);
DTRAIN_API dtrain_status_t dtrain_reducescatter(const char *name, const void *in, void *out,
                                                int64_t count, dtrain_dtype_t dtype,
                                                dtrain_op_t op);
DTRAIN_API dtrain_status_t dtrain_allgather(const char *name, const void *in, void *out,
                                            int64_t count, dtrain_dtype_t dtype);
DTRAIN_API dtrain_status_t dtrain_alltoall(const char *name, const void *in, void *out,
                                           int64_t count, dtrain_dtype_t dtype);
DTRAIN_API dtrain_status_t dtrain_gather(const char *name, const void *in, void *out, int64_t count,
                                         dtrain_dtype_t dtype, int root);
DTRAIN_API dtrain_status_t dtrain_scatter(const char *name, const void *in, void *out,
                                          int64_t count, dtrain_dtype_t dtype, int root);
DTRAIN_API dtrain_status_t dtrain_send(const char *name, const void *buffer, int64_t count,
                                       dtrain_dtype_t dtype, int peer);
DTRAIN_API dtrain_status_t dtrain_recv(const char *name, void *buffer, int64_t count,
                                       dtrain_dtype_t dtype, int peer);
DTRAIN_API dtrain_status_t dtrain_barrier(void);

/* ---- Handles --------------------------------------------------------------------------- */

/*
 * Sets *done to 1 when the operation is done, well or badly, and to 0 when it is not. Returns
 * OK in both cases; INVALID_HANDLE for a stale handle. Does not block.
 */
DTRAIN_API dtrain_status_t dtrain_poll(dtrain_handle_t handle, int *done);

/*
 * Waits until the operation is done and returns its status; dtrain_last_error() then has its
 * text. While it waits, the calling thread does the library's work, so that a small operation
 * costs no thread switch. Ends at the operation's deadline at the latest. The handle stays
 * valid until it is released. Several threads may wait for one handle.
 */
DTRAIN_API dtrain_status_t dtrain_wait(dtrain_handle_t handle);

/*
 * As dtrain_wait, for at most `timeout_ms` milliseconds (0: a poll that also does work). Returns
 * DTRAIN_IN_PROGRESS when the operation is not done by then; it stays in flight.
 */
DTRAIN_API dtrain_status_t dtrain_wait_for(dtrain_handle_t handle, int timeout_ms);

/*
 * Waits for all of `n` handles. Returns OK when all are OK, else the status of the first in the
 * array that failed. `each` (NULL or n entries) receives every handle's status. Handles stay
 * valid.
 */
DTRAIN_API dtrain_status_t dtrain_wait_all(const dtrain_handle_t *handles, int n,
                                           dtrain_status_t *each);

/*
 * Waits until one of `n` handles is done, sets *index to its place in the array (the first, when
 * several are) and returns its status. Entries that are 0 are passed over, so that a loop sets to 0
 * what it has dealt with. A handle that was released counts as done, with INVALID_HANDLE.
 * INVALID_ARGUMENT when there is no handle to wait for, or `index` is NULL. Otherwise as
 * dtrain_wait.
 */
DTRAIN_API dtrain_status_t dtrain_wait_any(const dtrain_handle_t *handles, int n, int *index);

/*
 * Where the output of an operation that is done lies: `data` is the caller's own `out`, or memory
 * of the library when `out` was NULL, which is valid until the handle is released (NULL when it is
 * of 0 bytes); shape[0 … *ndim-1] is its shape, of which `shape` (NULL, or room for DTRAIN_NDIM_MAX
 * extents) receives as many. `data` and `ndim` may be NULL too.
 *
 * IN_PROGRESS when the operation is not done, its status when it failed, INVALID_HANDLE;
 * INVALID_ARGUMENT for an operation without an output (barrier). Does not block.
 */
DTRAIN_API dtrain_status_t dtrain_output(dtrain_handle_t handle, const void **data, int64_t *shape,
                                         int *ndim);

/*
 * How many rows came from each rank, into splits[0 … n-1]; `n` is the number of ranks of the set.
 * For allgather, gather and alltoall; INVALID_ARGUMENT for others, or for another `n`. Otherwise
 * as dtrain_output.
 */
DTRAIN_API dtrain_status_t dtrain_recv_splits(dtrain_handle_t handle, int64_t *splits, int n);

/*
 * Gives a handle back; it is invalid from then on. An operation that is not done keeps its
 * handle: DTRAIN_IN_PROGRESS, and nothing changes. Every handle has to be released, a failed
 * one too.
 */
DTRAIN_API dtrain_status_t dtrain_release(dtrain_handle_t handle);

/*
 * Copies the operation's error text, at most cap bytes with the final zero, into `text`; "" when
 * it has none. INVALID_HANDLE, INVALID_ARGUMENT (text NULL or cap 0).
 */
DTRAIN_API dtrain_status_t dtrain_handle_error(dtrain_handle_t handle, char *text, size_t cap);

/* ---- Codecs -------------------------------------------------------------------------------- */

/*
 * An allreduce (op SUM or AVERAGE) of fp32 can travel in fewer bytes: `codec` in dtrain_options_t,
 * which all ranks must give alike. Values are encoded for the way, added in fp32 in rank order, and
 * the result is encoded again for the way back, so all ranks receive the same bits, fused or not.
 *
 *   fp16, bf16   Each value is rounded to 16 bits. What is beyond the largest fp16, 65504, becomes
 *                infinite.
 *   int8         A byte an element and four for each 256, whose largest magnitude becomes 127. A
 *                value that is not finite makes its 256 NaN. With feedback.
 *   topk:P       Of each rank's share of a tensor the part P (0.01 when P is left out) with the
 *                largest magnitudes, at eight bytes each; the others are zero. With feedback.
 *
 * Feedback: what encoding leaves out (here, and of the result on the rank that adds up a share) is
 * kept in the library by the tensor's name and added to the same tensor the next time, so nothing
 * is lost, only late. That takes memory of one to two times the tensor's size for each name, until
 * dtrain_shutdown or the removal of the process set: names must recur from step to step. Another
 * shape, or another codec, begins anew.
 *
 * A codec is UNSUPPORTED for other operations, types and reductions. While a rank has joined, one
 * of the program's own is INVALID_ARGUMENT, since the library does not know it there.
 */

/*
 * Makes one of the library's codecs by its name: "fp16", "bf16", "int8", "topk" or "topk:0.05". To
 * be given back with dtrain_codec_destroy, when the last call that is given it has returned; the
 * operations may still be under way. Works without a world; does not block. INVALID_ARGUMENT for
 * another name or NULL, OUT_OF_MEMORY.
 */
DTRAIN_API dtrain_status_t dtrain_codec_create(const char *name, dtrain_codec_t **codec);

/* Gives a codec of dtrain_codec_create back; NULL is nothing. */
DTRAIN_API void dtrain_codec_destroy(dtrain_codec_t *codec);

/* ---- Samples ----------------------------------------------------------------------------- */

/*
 * A sampler says which samples a rank trains on: numbers from 0 to num_samples - 1, which the
 * program looks up in its data. It needs no world and sends nothing: every rank computes its own
 * part of the same plan.
 *
 * An epoch is an order of all samples, drawn from seed and epoch alone, and cut into global
 * batches; each global batch is cut into one part a rank, in rank order, whose lengths differ by
 * one at most. So batch k of epoch e holds the same samples at any number of ranks, and training
 * that stops in the middle of an epoch goes on there with another number of ranks. The order of
 * a seed and an epoch is the same on every machine, and no version with the same major number
 * changes it.
 *
 *     dtrain_sampler_desc_t desc = {.struct_size = sizeof desc, .num_samples = 60000,
 *                                   .global_batch = 512, .seed = 1};
 *     dtrain_sampler_t *sampler;
 *     dtrain_sampler_create(&desc, &sampler);
 *     int64_t samples[512];
 *     dtrain_batch_t batch = {.struct_size = sizeof batch};
 *     while (dtrain_sampler_next(sampler, samples, 512, &batch) == DTRAIN_OK && batch.epoch < 10)
 *         train(samples, batch.count, batch.global_count);
 *     dtrain_sampler_destroy(sampler);
 *
 * For the gradient of the mean over the global batch each rank divides the sum over its own
 * samples by global_count, and the ranks' results are added up (DTRAIN_OP_SUM): parts may differ
 * in length, and a rank whose part is empty contributes zeros.
 *
 * Different samplers may be used by different threads; one sampler by one thread at a time.
 */
typedef struct dtrain_sampler dtrain_sampler_t;

typedef enum dtrain_sampler_order {
    DTRAIN_SAMPLER_SHUFFLED = 0,  /* another order in every epoch */
    DTRAIN_SAMPLER_SEQUENTIAL = 1 /* 0, 1, 2, ... in every epoch; the seed is not used */
} dtrain_sampler_order_t;

/* What becomes of an epoch's last batch when num_samples is no multiple of global_batch. */
typedef enum dtrain_sampler_last {
    DTRAIN_SAMPLER_LAST_SHORT = 0,  /* it has fewer samples: every sample is used once an epoch */
    DTRAIN_SAMPLER_LAST_DROPPED = 1 /* it is left out; its samples differ from epoch to epoch */
} dtrain_sampler_last_t;

typedef struct dtrain_sampler_desc {
    uint32_t struct_size;
    int32_t order;        /* dtrain_sampler_order_t */
    int64_t num_samples;  /* of an epoch: 1 to 2^62 */
    int64_t global_batch; /* samples of a step over all ranks, >= 1 */
    uint64_t seed;        /* the same on all ranks */
    int32_t last_batch;   /* dtrain_sampler_last_t */
    int32_t rank;         /* whose part is wanted: 0 to size - 1 */
    int32_t size;         /* number of ranks; 0: rank and size of the world, and rank must be 0 */
    uint32_t reserved;    /* 0 */
} dtrain_sampler_desc_t;

/* This rank's part of a global batch. */
typedef struct dtrain_batch {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t epoch;        /* from 0 */
    int64_t batch;        /* in its epoch, 0 to num_batches - 1 */
    int64_t num_batches;  /* of every epoch */
    int64_t count;        /* samples of this rank; may be 0 */
    int64_t first;        /* samples of the global batch that lower ranks have */
    int64_t global_count; /* samples of the global batch: the global_batch asked for, or fewer in an
                             epoch's last one */
} dtrain_batch_t;

/*
 * Where a sampler stands, and of which plan: plain data without a pointer, the same on all ranks,
 * that may be stored as bytes and read by the same version of the library on the same kind of
 * machine.
 */
typedef struct dtrain_sampler_state {
    uint32_t struct_size;
    int32_t order;
    int32_t last_batch;
    uint32_t reserved;
    int64_t num_samples;
    int64_t global_batch;
    uint64_t seed;
    int64_t epoch; /* of the batch that comes next */
    int64_t batch; /* the batch that comes next */
} dtrain_sampler_state_t;

/*
 * Makes a sampler that stands at epoch 0, batch 0. `desc` is copied. A sampler takes some 200
 * bytes, however many samples there are. INVALID_ARGUMENT (the text names the field; also a
 * dropped last batch with fewer samples than one batch), NOT_INITIALIZED (size 0 without a world),
 * OUT_OF_MEMORY. Does not block. To be given back with dtrain_sampler_destroy, also after
 * dtrain_shutdown.
 */
DTRAIN_API dtrain_status_t dtrain_sampler_create(const dtrain_sampler_desc_t *desc,
                                                 dtrain_sampler_t **sampler);

/* Gives a sampler back; NULL is nothing. */
DTRAIN_API void dtrain_sampler_destroy(dtrain_sampler_t *sampler);

/*
 * Writes the numbers of this rank's samples of the next global batch to `samples`, which has room
 * for `cap`: global_batch / size, rounded up, is always enough. Fills in *batch, whose struct_size
 * is set before. After an epoch's last batch comes the first one of the next epoch, without end.
 * INVALID_ARGUMENT when the room is too small (the sampler stays where it is) or for NULL;
 * `samples` may be NULL with cap 0. Does not block; costs well below a microsecond a sample.
 */
DTRAIN_API dtrain_status_t dtrain_sampler_next(dtrain_sampler_t *sampler, int64_t *samples,
                                               int64_t cap, dtrain_batch_t *batch);

/*
 * Lets `batch` of `epoch` come next. INVALID_ARGUMENT, and nothing changes, for a negative number
 * or a batch that the epoch does not have. Takes the same short time wherever it leads.
 */
DTRAIN_API dtrain_status_t dtrain_sampler_seek(dtrain_sampler_t *sampler, int64_t epoch,
                                               int64_t batch);

/* Fills in *state, whose struct_size is set before. INVALID_ARGUMENT for NULL or a bad size. */
DTRAIN_API dtrain_status_t dtrain_sampler_save(const dtrain_sampler_t *sampler,
                                               dtrain_sampler_state_t *state);

/*
 * Goes on where `state` was taken, on any rank of any number of ranks. INVALID_ARGUMENT, and
 * nothing changes, when it is of another plan: the text names the field and both values.
 */
DTRAIN_API dtrain_status_t dtrain_sampler_restore(dtrain_sampler_t *sampler,
                                                  const dtrain_sampler_state_t *state);

/* ---- Gradient sets ------------------------------------------------------------------------- */

/*
 * A gradient set is the gradients of a model, declared once. In each step the program writes every
 * gradient and marks it as ready by its number; the library reduces them over the ranks in buckets,
 * each as soon as its last gradient is ready, while the program computes the others.
 *
 *     dtrain_param_t params[2] = {
 *         {.struct_size = sizeof params[0], .name = "weight", .ndim = 2, .shape = weight_shape,
 *          .dtype = DTRAIN_DTYPE_F32},
 *         {.struct_size = sizeof params[1], .name = "bias", .ndim = 1, .shape = bias_shape,
 *          .dtype = DTRAIN_DTYPE_F32}};
 *     dtrain_gradset_desc_t desc = {.struct_size = sizeof desc, .op = DTRAIN_OP_AVERAGE};
 *     dtrain_gradset_t *set;
 *     dtrain_gradset_create(&desc, params, 2, &set);
 *     float *gradients[2];
 *     for (int i = 0; i < 2; i++)
 *         dtrain_gradset_buffer(set, i, (void **)&gradients[i]);
 *     for (;;) {
 *         ... compute gradients[1] ...
 *         dtrain_gradset_ready(set, 1, NULL);
 *         ... compute gradients[0] ...
 *         dtrain_gradset_ready(set, 0, NULL);
 *         dtrain_gradset_wait(set);
 *         ... use them: all ranks have the same ...
 *     }
 *
 * A step is what lies between two waits; all ranks of the set's process set make the same steps. A
 * gradient may be written from the end of a step's wait to its own mark, and read after the wait. A
 * gradient that was not marked takes part with zeros, which a warning says once for each. Where
 * ranks are not at the same step (one has waited once more or less, has other passes, or its sync
 * off) nothing is added up: MISMATCH on all ranks, and the text has the ranks and their steps. A
 * step for which a rank has marked nothing while others have is such a one: a rank without data
 * says so by dtrain_gradset_unused, or dtrain_join.
 *
 * Gradients in the library's memory are reduced where they lie. Those in the caller's are copied to
 * the library's and back.
 *
 * The first step's buckets follow the expected order of readiness (`order`). Then all ranks take
 * the order in which the gradients of the set's first rank became ready, and keep it. Buckets
 * change no bits: results are those of dtrain_allreduce_async for each gradient (with a lossy
 * codec: of each bucket).
 *
 * Errors of a step come at its wait, on all ranks, with a text that names the bucket by its first
 * and last gradient. The next step works, unless the world is gone.
 *
 * Threads: any number may mark gradients at once; the other calls on one set are made by one thread
 * at a time, and create and the wait by all ranks in the same order with other collective calls.
 */
typedef struct dtrain_gradset dtrain_gradset_t;

/* A parameter of a model, and its gradient. */
typedef struct dtrain_param {
    uint32_t struct_size;
    int32_t ndim;                  /* as in dtrain_tensor_t */
    const char *name;              /* 1 to DTRAIN_NAME_MAX bytes, no two alike in a set */
    const int64_t *shape;          /* ndim extents */
    dtrain_dtype_t dtype;          /* of the parameter */
    dtrain_dtype_t gradient_dtype; /* of the gradient; 0: the same */
    void *data;                    /* the parameter's values, for an optimizer; or NULL */
    void *gradient;                /* the caller's memory for the gradient; NULL: the library's */
} dtrain_param_t;

typedef struct dtrain_gradset_desc {
    uint32_t struct_size;
    dtrain_op_t op;             /* DTRAIN_OP_SUM or DTRAIN_OP_AVERAGE */
    const char *name;           /* for texts; NULL: "gradients". Several sets may have the same */
    double prescale, postscale; /* as in dtrain_options_t */
    dtrain_pset_t pset;         /* the ranks that train together, of which this is one */
    int32_t timeout_ms; /* deadline of a bucket, from when it is complete on this rank; 0: the
                           configured one; -1: none */
    int64_t first_bucket_bytes; /* size of the first bucket; 0: default, 1 MiB */
    int64_t bucket_bytes;       /* size of the others, at least; 0: default, 8 MiB */
    const int32_t *order;       /* numbers of all parameters as they are expected to become ready;
                                   NULL: the last one first, as backward passes go */
    int32_t fixed_order;        /* 1: that is kept, whatever is observed */
    uint32_t reserved;          /* 0 */
    /* How float32 gradients travel, from the step on in which the order is kept; NULL: as they are.
     * The program's own must stay until the set is destroyed. Where ranks get shares only (a
     * sharded optimizer) a codec is UNSUPPORTED. */
    const dtrain_codec_t *codec;
    /* DTRAIN_DEVICE_CPU, or DTRAIN_DEVICE_CUDA for gradients, and parameters, in the memory of this
     * rank's GPU (dtrain_cuda.h). 0 for callers built before. */
    int32_t device;
    uint32_t reserved2; /* 0 */
} dtrain_gradset_desc_t;

/*
 * Declares the gradients of `n` parameters. Collective: all ranks of desc->pset call it, with the
 * same parameters (names, shapes and types in the same order) and settings. Everything is copied
 * but the memory that params[i].gradient points to, which is lent until the set is destroyed. n may
 * be 0.
 *
 * Blocks until all ranks have called it. Errors, on all ranks alike: MISMATCH, and the text names
 * the tensor, two ranks and both values; INVALID_ARGUMENT, UNSUPPORTED (another op, or more than 16
 * pairs of types) or OUT_OF_MEMORY of any rank; those of dtrain_allreduce_async. IN_CALLBACK.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_create(const dtrain_gradset_desc_t *desc,
                                                 const dtrain_param_t *params, int n,
                                                 dtrain_gradset_t **set);

/*
 * Frees a set and its memory; NULL is nothing. Waits for buckets that are on their way. Other ranks
 * are not told: destroy a set on all ranks. A set has to be destroyed after dtrain_shutdown, too,
 * which has freed its memory already; all other calls then return NOT_INITIALIZED.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_destroy(dtrain_gradset_t *set);

/*
 * Where gradient `index` lies, row-major: memory of the library, aligned to 128 bytes and zeroed at
 * first, or the caller's own. The same as long as the set lives. INVALID_ARGUMENT.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_buffer(dtrain_gradset_t *set, int index, void **buffer);

/*
 * Marks a gradient as ready: its memory is lent to the library until the step's wait. On a GPU it
 * is ready when all is done that is in `stream` by now; NULL is the default stream, and what
 * gradients in host memory have. INVALID_ARGUMENT when it was marked in this step already (as often
 * as there are passes), UNSUPPORTED (stream, in host memory). Does not block, takes no lock and
 * allocates nothing; the mark that completes a bucket may have to wake the library's thread, which
 * is a system call.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_ready(dtrain_gradset_t *set, int index, void *stream);

/* Marks the `n` gradients whose numbers `indices` lists. The first error ends it. */
DTRAIN_API dtrain_status_t dtrain_gradset_ready_n(dtrain_gradset_t *set, const int *indices, int n,
                                                  void *stream);

/* Says that this step (or, with several passes, this pass) has no such gradient: zeros take its
 * place, without a warning, if no other pass brings it. Otherwise as dtrain_gradset_ready. */
DTRAIN_API dtrain_status_t dtrain_gradset_unused(dtrain_gradset_t *set, int index);

/*
 * Ends a step: waits until all gradients are reduced. While it waits, the calling thread does the
 * library's work. OK at once while sync is off. Errors as at dtrain_wait, MISMATCH also where ranks
 * are at different steps; then what the gradients hold is undefined. Where the next step's
 * gradients were marked before this call, which their marks' INVALID_ARGUMENT says, it ends that
 * step too, so that this rank is again where the others are: all get an error for it.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_wait(dtrain_gradset_t *set);

/*
 * Waits until gradient `index` is reduced, without ending the step. IN_PROGRESS, at once, when a
 * gradient of the same bucket was not marked yet. Errors as dtrain_gradset_wait.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_wait_one(dtrain_gradset_t *set, int index);

/*
 * After a step's wait: multiplies all gradients by max_norm / norm where their global norm (the
 * root of the sum of all squares, of all gradients together) is larger than max_norm. *norm
 * receives it as it was before; it has the same bits on all ranks, and is NaN, with nothing
 * changed, when a gradient is not finite. For programs that update parameters themselves: an
 * optimizer's max_norm costs less.
 *
 * Collective, with the same max_norm; blocks. INVALID_ARGUMENT (max_norm not above 0, norm NULL, in
 * the middle of a step), UNSUPPORTED (gradients of integers), on all ranks alike; else as
 * dtrain_allreduce.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_clip(dtrain_gradset_t *set, double max_norm,
                                               double *norm);

/*
 * From now on a step has `passes` passes (at first 1): a gradient is ready when it was marked as
 * often. The program adds each pass's gradient to what is in its memory, and so lets the first pass
 * overwrite, or clears it. The same on all ranks. INVALID_ARGUMENT for less than 1 or more than
 * 32767, or in the middle of a step.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_set_accumulation(dtrain_gradset_t *set, int passes);

/*
 * `on` 0: from now on marks and waits do nothing, so that gradients are only this rank's; 1: they
 * count again. The same on all ranks, which also wait equally often meanwhile. INVALID_ARGUMENT in
 * the middle of a step.
 */
DTRAIN_API dtrain_status_t dtrain_gradset_sync_enable(dtrain_gradset_t *set, int on);

/* What a set has come to. */
typedef struct dtrain_gradset_stats {
    uint32_t struct_size;
    int32_t num_params;
    int32_t num_buckets;
    int32_t is_frozen;    /* 1: the buckets stay as they are */
    int64_t bytes;        /* of all gradients, with what lies between them */
    int64_t steps;        /* that were ended */
    int64_t num_missing;  /* gradients in whose place zeros took part, over all steps */
    int64_t waited_ns;    /* in waits, for buckets that were not reduced yet, over all steps */
    int64_t copied_bytes; /* of gradients, into the library's memory and out of it, over all steps:
                             0 where they are reduced as they lie */
} dtrain_gradset_stats_t;

/* Fills in *stats, whose struct_size is set before. INVALID_ARGUMENT. Does not block. */
DTRAIN_API dtrain_status_t dtrain_gradset_get_stats(dtrain_gradset_t *set,
                                                    dtrain_gradset_stats_t *stats);

/* ---- Optimizers ---------------------------------------------------------------------------- */

/*
 * An optimizer updates the parameters of a gradient set's model, each step from the gradients that
 * the set has reduced:
 *
 *     dtrain_optimizer_desc_t desc = {.struct_size = sizeof desc, .rule = DTRAIN_RULE_ADAMW,
 *                                     .weight_decay = 0.01, .sharded = 1};
 *     dtrain_optimizer_t *optimizer;
 *     dtrain_optimizer_create(set, &desc, &optimizer);
 *     for (int i = 0; i < n; i++)
 *         dtrain_optimizer_param(optimizer, i, (void **)&parameters[i]);
 *     ... rank 0 fills them in ...
 *     dtrain_optimizer_broadcast(optimizer, 0);
 *     for (;;) {
 *         ... compute gradients, mark each as ready ...
 *         dtrain_optimizer_step(optimizer, learning_rate, NULL);
 *     }
 *
 * Unsharded, every rank updates all parameters. Sharded, each rank of n keeps the state of 1/n of
 * the parameters and updates these: gradients are reduced to shares, and updated parameters are
 * gathered, which moves as many bytes as an allreduce. Both give the same parameters, bit for bit.
 * Each share is needed, so a sharded step fails while a rank has joined.
 *
 * Parameters whose `data` the set's creation was given stay there; sharded, they are copied to and
 * from the library's memory in each step. For others the library has memory, shared within the
 * node, with no copies.
 *
 * Parameters are of 32 or 64 bits, or of 16, which the model then sees rounded: the optimizer keeps
 * them in float32 in its state, as they are at its first step or load. Gradients are float32,
 * float16 or bfloat16; float64 with parameters of float64.
 *
 * A step's sums over all gradients (norm and finiteness) are taken only where max_norm or
 * loss_scale ask for them. A step that finds a gradient that is not finite on any rank changes
 * nothing, on any rank.
 *
 * An optimizer is used by one thread at a time. It has to be destroyed before its set.
 */
typedef struct dtrain_optimizer dtrain_optimizer_t;

/* As torch.optim's, rounded to the parameters' type after each operation. Numbers are never reused.
 */
typedef enum dtrain_rule {
    DTRAIN_RULE_SGD = 1,   /* momentum, Nesterov, weight decay added to the gradient */
    DTRAIN_RULE_ADAM = 2,  /* weight decay added to the gradient */
    DTRAIN_RULE_ADAMW = 3, /* weight decay shrinks the parameter */
    DTRAIN_RULE_USER = 4   /* `update` of the description */
} dtrain_rule_t;

/* A range of one parameter, for a rule of the user's. */
typedef struct dtrain_update {
    uint32_t struct_size;
    int32_t param; /* its number in the set */
    int64_t begin; /* its element at which the range begins, row-major */
    int64_t count; /* elements */
    int64_t step;  /* the step's number, from 1 */
    double learning_rate;
    double scale;         /* to multiply gradients with: clipping, 1 / loss scale */
    dtrain_dtype_t dtype; /* of values and states */
    dtrain_dtype_t gradient_dtype;
    const void *gradients; /* count of them, reduced */
    void *values;          /* the parameter's, to be updated */
    void *states[4];       /* num_states arrays of count elements; zeros before the first */
    int32_t device;        /* where all of that lies: DTRAIN_DEVICE_CPU, or _CUDA */
    uint32_t reserved;
    void *stream; /* _CUDA: the stream in which it is to be updated, and no other */
} dtrain_update_t;

/*
 * Updates a range. An element's new value may depend on this element's gradient, value and states
 * alone, since ranges begin and end anywhere. Called in dtrain_optimizer_step, on its thread; it
 * may not call libdtrain.
 */
typedef void (*dtrain_update_fn_t)(const dtrain_update_t *update, void *user);

typedef struct dtrain_optimizer_desc {
    uint32_t struct_size;
    int32_t rule;     /* dtrain_rule_t */
    int32_t sharded;  /* 1: each rank has its share of the state and of the work */
    int32_t nesterov; /* SGD; needs a momentum */
    double momentum;  /* SGD; 0: none, and no state */
    double weight_decay;
    double beta1, beta2;       /* Adam, AdamW; 0: 0.9 and 0.999; negative: 0 */
    double epsilon;            /* Adam, AdamW; 0: 1e-8; negative: 0 */
    double max_norm;           /* the global norm to which gradients are scaled down; 0: any */
    double loss_scale;         /* what the program multiplies its loss by at first; 0: nothing */
    int32_t growth_interval;   /* good steps until the loss scale doubles; 0: 2000; -1: never */
    int32_t num_states;        /* USER: arrays of state, 0 to 4 */
    dtrain_update_fn_t update; /* USER */
    void *user;                /* for `update` */
} dtrain_optimizer_desc_t;

/*
 * Makes the optimizer of a set; a set has one at most. Collective on the set's ranks, which give
 * the same description; between steps. Blocks. Errors, on all ranks alike: MISMATCH,
 * INVALID_ARGUMENT, UNSUPPORTED (types), OUT_OF_MEMORY; those of dtrain_allreduce_async.
 * IN_CALLBACK.
 */
DTRAIN_API dtrain_status_t dtrain_optimizer_create(dtrain_gradset_t *set,
                                                   const dtrain_optimizer_desc_t *desc,
                                                   dtrain_optimizer_t **optimizer);

/* Frees an optimizer and its memory, that of parameters too; NULL is nothing. Also after
 * dtrain_shutdown; before the set is destroyed. Does not block. */
DTRAIN_API void dtrain_optimizer_destroy(dtrain_optimizer_t *optimizer);

/* Where parameter `index` lies: the caller's memory, or the library's, aligned to 64 bytes, zeroed
 * at first, and the same as long as the optimizer lives. INVALID_ARGUMENT, NOT_INITIALIZED. */
DTRAIN_API dtrain_status_t dtrain_optimizer_param(dtrain_optimizer_t *optimizer, int index,
                                                  void **values);

/* What a step did. */
typedef struct dtrain_step_info {
    uint32_t struct_size;
    int32_t skipped; /* 1: a gradient was not finite, and nothing was changed */
    int64_t step;    /* steps that changed the parameters, so far */
    double norm;     /* of the gradients over all ranks, without the loss scale and before clipping;
                        0 unless max_norm or loss_scale ask for it */
    double clip;     /* the factor by which clipping made the gradients smaller; 1: not */
    double loss_scale; /* for the next step; 1 without */
} dtrain_step_info_t;

/*
 * Does a step: ends the set's step, as dtrain_gradset_wait, unless that was called already, and
 * updates all parameters with `learning_rate`, which is the same on all ranks. Runs of gradients
 * are updated as they come, while others are still being reduced. Fills in *info (NULL: not
 * wanted), whose struct_size is set before.
 *
 * Collective; blocks. INVALID_ARGUMENT (rate, struct_size, sync off). Errors of the gradients as at
 * dtrain_gradset_wait: parameters whose gradients failed are not changed, others may be, on all
 * ranks alike.
 */
DTRAIN_API dtrain_status_t dtrain_optimizer_step(dtrain_optimizer_t *optimizer,
                                                 double learning_rate, dtrain_step_info_t *info);

/*
 * Gives all ranks the parameters of rank `root` of the world, the number of its steps and its loss
 * scale; unsharded, its state as well. (Sharded, each part of the state is on one rank alone.)
 * Collective, between steps; blocks. Errors as dtrain_broadcast_async.
 */
DTRAIN_API dtrain_status_t dtrain_optimizer_broadcast(dtrain_optimizer_t *optimizer, int root);

/*
 * Writes parameters and state to `path`: one file, written by the set's first rank; or,
 * `in_shards`, a file of each rank's beside it, and at `path` an index, for which all ranks have to
 * see the same folder. A file gets its name when it is complete and on the disk, so what was saved
 * there before stays until then, and all bytes are under checksums.
 *
 * Collective, between steps; blocks. FILE (with the system's reason), OUT_OF_MEMORY on all ranks
 * alike; INVALID_ARGUMENT, and errors as dtrain_broadcast_async.
 */
DTRAIN_API dtrain_status_t dtrain_optimizer_save(dtrain_optimizer_t *optimizer, const char *path,
                                                 int in_shards);

/*
 * Loads what was saved, at this or another number of ranks, sharded or not, whichever way it was
 * written: parameters, state, number of steps, loss scale. The parameters' names, types and shapes
 * and the rule must be those of the save. `root` -1: every rank reads the file; otherwise rank
 * `root` of the world alone does, and the others receive what it has read. A set that has not done
 * a step yet also takes over the order in which gradients became ready.
 *
 * Collective, between steps; blocks. FILE (also for what differs from the save), MISMATCH when the
 * ranks have read different saves, OUT_OF_MEMORY, on all ranks alike; INVALID_ARGUMENT, and errors
 * as dtrain_broadcast_async. After an error parameters and state may be partly loaded, unless it is
 * the save that cannot be read.
 */
DTRAIN_API dtrain_status_t dtrain_optimizer_load(dtrain_optimizer_t *optimizer, const char *path,
                                                 int root);

/* What an optimizer has come to. */
typedef struct dtrain_optimizer_stats {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t state_bytes; /* of this rank, once there was a step or a load */
    int64_t updated_ns;  /* in updates, over all steps */
    int64_t gathered_ns; /* in waits for gathered parameters, over all steps */
    /* Of parameters, into the library's memory and out of it, over all steps. */
    int64_t copied_bytes;
} dtrain_optimizer_stats_t;

/* Fills in *stats, whose struct_size is set before. INVALID_ARGUMENT. Does not block. */
DTRAIN_API dtrain_status_t dtrain_optimizer_get_stats(dtrain_optimizer_t *optimizer,
                                                      dtrain_optimizer_stats_t *stats);

/*
 * Gives all ranks of the world the values (`data`, of which none is NULL) of n parameters on rank
 * `root`, in host memory (on a GPU: dtrain_cuda_broadcast_params), for programs without an
 * optimizer. Names, types and shapes are those of a gradient set's creation, the same on all ranks.
 * Blocks. Errors as dtrain_broadcast_async, for each parameter; the first is returned.
 */
DTRAIN_API dtrain_status_t dtrain_broadcast_params(const dtrain_param_t *params, int n, int root);

/* ---- Process sets ------------------------------------------------------------------------ */

/*
 * A process set is some of the world's ranks, in an order of their own: rank i of the set is the
 * i-th that its definition lists, and values are combined in that order. An operation is on the set
 * that dtrain_options_t names; it is done when the members have submitted it. A name may be in
 * flight in two sets at once. Operations on different sets do not wait for each other, nor does the
 * order in which a rank submits to them matter. An average divides by the set's size; the root of
 * an operation is a rank of the world, and must be a member. Sets may overlap, hold one rank or
 * all.
 *
 * A call by a rank that is no member is INVALID_ARGUMENT there, and fails the operation of that
 * name on the members: the ranks disagree on who they are. A call on a set that does not exist
 * (any more) is INVALID_ARGUMENT, and meets the other ranks' calls of that name on the world, or
 * else on the first set on which they wait for this rank.
 *
 * Process sets that exist from dtrain_init on: process_sets in dtrain_config_t.
 */

/*
 * Adds a process set: `ranks` lists its `n` ranks, each once, in the order of their numbers in it.
 * Every rank of the world must call it, members or not, with the same list; the n-th call of a rank
 * meets the n-th of the others. *pset receives the set's id, the same on all ranks, which is never
 * used for another set. At most 255 sets exist at a time.
 *
 * Blocks until every rank has called it. Errors, on all ranks alike: MISMATCH when the lists
 * differ, INVALID_ARGUMENT for a rank that is none or is listed twice, or n < 1, on any rank, or
 * when a rank has joined the world, UNSUPPORTED past 255 sets, OUT_OF_MEMORY, and those of
 * dtrain_allreduce_async. Then there is no new set on any rank.
 */
DTRAIN_API dtrain_status_t dtrain_pset_add(const int *ranks, int n, dtrain_pset_t *pset);

/*
 * Removes a process set. Every rank of the world must call it, as for dtrain_pset_add. It does not
 * wait for operations: INVALID_ARGUMENT, on all ranks, when one is pending on the set on any rank,
 * for the world, and for a set that does not exist. Then the set stays.
 */
DTRAIN_API dtrain_status_t dtrain_pset_remove(dtrain_pset_t pset);

/*
 * This rank's number in a set, -1 when it is no member; the set's size; 1 when this rank is a
 * member, else 0. Local; do not block. INVALID_ARGUMENT for a set that does not exist or NULL.
 */
DTRAIN_API dtrain_status_t dtrain_pset_rank(dtrain_pset_t pset, int *rank);
DTRAIN_API dtrain_status_t dtrain_pset_size(dtrain_pset_t pset, int *size);
DTRAIN_API dtrain_status_t dtrain_pset_included(dtrain_pset_t pset, int *included);

/*
 * The ranks of a set by their numbers in it: at most `cap` are written to `ranks` (NULL when cap is
 * 0), and *n receives how many there are. Errors as above.
 */
DTRAIN_API dtrain_status_t dtrain_pset_ranks(dtrain_pset_t pset, int *ranks, int cap, int *n);

/* ---- Join --------------------------------------------------------------------------------- */

/*
 * Says that this rank has no more data: from now on operations on the set (options->pset) go on
 * without it. In reductions it counts as the value that changes nothing (0, 1 for a product, the
 * largest value for a minimum, and so on), to the bit; in an allgather it has no rows; barriers do
 * not wait for it. What an average divides by is the setting join_divisor. An operation whose root
 * has joined and was to give the data is INVALID_ARGUMENT on the ranks that submitted it, as is a
 * product with a prescale. What this rank has submitted before still counts.
 *
 * The operation is done when every rank of the set has joined; dtrain_join_last_rank then tells the
 * last. Until then this rank may submit nothing on the set (INVALID_ARGUMENT; a second join:
 * DUPLICATE_NAME); afterwards all goes on as before. Of the options, `pset` and `timeout_ms` count;
 * 0 is no deadline here, since the others may have much left to do. Blocking and errors as
 * dtrain_allreduce_async.
 */
DTRAIN_API dtrain_status_t dtrain_join_async(const dtrain_options_t *options,
                                             dtrain_handle_t *handle);

/*
 * Of a join that is done: the rank of the world that joined last; it has seen the most data, and
 * may broadcast what it has learnt. IN_PROGRESS before that; the join's own error; INVALID_HANDLE;
 * INVALID_ARGUMENT for another operation's handle, or NULL. Does not block.
 */
DTRAIN_API dtrain_status_t dtrain_join_last_rank(dtrain_handle_t handle, int *last_rank);

/* Joins the world, waits, and tells the last rank; last_rank may be NULL. */
DTRAIN_API dtrain_status_t dtrain_join(int *last_rank);

/* ---- Agreeing --------------------------------------------------------------------------- */

/*
 * Whether any rank wants to stop, so that all stop after the same step: none is left alone in an
 * operation, and a checkpoint is of one step. `local` is not 0 where this rank wants to. *any is 1
 * on all ranks when one of them does, else 0. Every rank calls it equally often, in a loop as
 *
 *     static volatile sig_atomic_t told;            // set by the program's handler of SIGTERM
 *     for (int stop = 0; !stop;) {
 *         train_one_step();
 *         if (dtrain_agree_stop(told, &stop) != DTRAIN_OK)
 *             break;
 *     }
 *     save_checkpoint();
 *
 * libdtrain handles no signals of its own accord. It is as fast as the smallest allreduce, and is
 * an operation like others: it has the configured deadline, does not wait for ranks that have
 * joined, and its errors are an operation's. Blocks; one call at a time. INVALID_ARGUMENT when
 * `any` is NULL (then this rank takes no part), IN_CALLBACK.
 */
DTRAIN_API dtrain_status_t dtrain_agree_stop(int local, int *any);

/*
 * Whether tensors that should be the same on all ranks are, as parameters after an update: compares
 * a checksum of each of the n tensors, bit for bit (+0 is not -0). All ranks of the process set
 * give tensors of the same names, types and lengths in the same order. Of a tensor name, in (only
 * read; on a GPU, of which a copy is taken when its stream is done), dtype, ndim, shape, device and
 * stream count; of the options (NULL: the world) pset and timeout_ms.
 *
 * OK when all are the same. MISMATCH on all ranks alike when not: the text has the first tensor
 * that differs, and the ranks that differ from most others (of two groups as large, from the lowest
 * rank's); also when the lists of tensors differ. INVALID_ARGUMENT, UNSUPPORTED (no GPU) or
 * OUT_OF_MEMORY on a rank whose call is refused: the others get INVALID_ARGUMENT, which names it
 * and says why. Errors as an operation's.
 *
 * Reads every byte, at several GB/s, and tells 16 bytes a tensor and rank: every few hundred steps
 * it costs next to nothing. Blocks; one call at a time on a process set.
 */
DTRAIN_API dtrain_status_t dtrain_check_equal(const dtrain_tensor_t *tensors, int n,
                                              const dtrain_options_t *options);

/* ---- Log -------------------------------------------------------------------------------- */

typedef enum dtrain_log_level {
    DTRAIN_LOG_OFF = 1,
    DTRAIN_LOG_ERROR = 2,
    DTRAIN_LOG_WARN = 3,
    DTRAIN_LOG_INFO = 4,
    DTRAIN_LOG_DEBUG = 5,
    DTRAIN_LOG_TRACE = 6
} dtrain_log_level_t;

/*
 * Writes the last operations of all ranks, about a thousand each, to the file `path` in place of
 * what it held: how far each has come, when, and what became of it. `dtrain-flight` reads such
 * files and says which rank is behind (docs/observing.md). Any rank may call it, at any time
 * between dtrain_init and dtrain_shutdown, also when operations hang or the world has ended: other
 * ranks need not do anything, and a rank of this node is read even if it is stopped or has died.
 * Of ranks on other nodes it holds what their nodes answer within two seconds, which it waits for.
 *
 * Any thread, callbacks too. INVALID_ARGUMENT for NULL or ""; FILE when it cannot be written;
 * NOT_INITIALIZED, FORKED. See also the settings flight_dir and flight_signal.
 */
DTRAIN_API dtrain_status_t dtrain_flight_dump(const char *path);

/*
 * Receives one log line (no newline) in place of stderr. Called from any thread, one call at a
 * time; it must not call libdtrain.
 */
typedef void (*dtrain_log_fn_t)(dtrain_log_level_t level, const char *line, void *user);

/* Sets the sink of log lines; NULL restores stderr. May be called before dtrain_init. */
DTRAIN_API void dtrain_set_log_callback(dtrain_log_fn_t fn, void *user);

#ifdef __cplusplus
}
#endif

#endif /* DTRAIN_DTRAIN_H */
