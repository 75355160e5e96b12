"""What dtrain.h and dtrain_cuda.h declare, for ctypes. Made by generate_abi.py; not edited by hand."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int,
                    c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p)

VERSION = 100

PSET_WORLD = 0
DEVICE_CPU = 0
DEVICE_CUDA = 1
NAME_MAX = 4096
NDIM_MAX = 16
CODEC_FEEDBACK = 1
CODEC_NAME_MAX = 23
OK = 0
IN_PROGRESS = 1
ERR_INVALID_ARGUMENT = -1
ERR_NOT_INITIALIZED = -2
ERR_ALREADY_INITIALIZED = -3
ERR_DUPLICATE_NAME = -4
ERR_MISMATCH = -5
ERR_TIMEOUT = -6
ERR_RANK_LOST = -7
ERR_SHUT_DOWN = -8
ERR_INVALID_HANDLE = -9
ERR_OUT_OF_MEMORY = -10
ERR_UNSUPPORTED = -11
ERR_CONFIG = -12
ERR_COMMUNICATION = -13
ERR_INTERNAL = -14
ERR_FORKED = -15
ERR_ABORTED = -16
ERR_IN_CALLBACK = -17
ERR_FILE = -18
FEATURE_MPI = 1
FEATURE_CUDA = 2
FEATURE_NCCL = 3
JOIN_DIVISOR_PRESENT = 0
JOIN_DIVISOR_ALL = 1
SHARED_MEMORY_ON = 0
SHARED_MEMORY_OFF = 1
GPU_AUTO = 0
GPU_STAGED = 1
GPU_SHARED = 2
GPU_OFF = 3
MPI_THREADS_MULTIPLE = 0
MPI_THREADS_SERIALIZED = 1
DTYPE_U8 = 1
DTYPE_I8 = 2
DTYPE_I32 = 3
DTYPE_I64 = 4
DTYPE_F16 = 5
DTYPE_F32 = 6
DTYPE_F64 = 7
DTYPE_BF16 = 8
DTYPE_BOOL = 9
DTYPE_U16 = 10
DTYPE_I16 = 11
OP_SUM = 0
OP_AVERAGE = 1
OP_MIN = 2
OP_MAX = 3
OP_PRODUCT = 4
OP_ADASUM = 5
SAMPLER_SHUFFLED = 0
SAMPLER_SEQUENTIAL = 1
SAMPLER_LAST_SHORT = 0
SAMPLER_LAST_DROPPED = 1
RULE_SGD = 1
RULE_ADAM = 2
RULE_ADAMW = 3
RULE_USER = 4
LOG_OFF = 1
LOG_ERROR = 2
LOG_WARN = 3
LOG_INFO = 4
LOG_DEBUG = 5
LOG_TRACE = 6

CallbackFn = CFUNCTYPE(None, c_uint64, c_int, c_void_p)

LogFn = CFUNCTYPE(None, c_int, c_char_p, c_void_p)


class Config(Structure):
    """dtrain_config_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("log_level", c_int32),
        ("fusion_threshold", c_int64),
        ("fusion_tensor_limit", c_int64),
        ("timeout_ms", c_int32),
        ("stall_warning_ms", c_int32),
        ("init_timeout_ms", c_int32),
        ("spin_us", c_int32),
        ("mpi_threads", c_int32),
        ("backend", c_char * 32),
        ("network_interface", c_char * 64),
        ("shared_memory", c_int32),
        ("isa", c_char * 16),
        ("heartbeat_ms", c_int32),
        ("link_timeout_ms", c_int32),
        ("join_divisor", c_int32),
        ("process_sets", c_char * 512),
        ("flight_dir", c_char * 256),
        ("flight_signal", c_char * 16),
        ("gpu", c_int32),
    ]


class Tensor(Structure):
    """dtrain_tensor_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_int32),
        ("name", c_char_p),
        ("in", c_void_p),
        ("out", c_void_p),
        ("shape", POINTER(c_int64)),
        ("dtype", c_int),
        ("device", c_int32),
        ("stream", c_void_p),
        ("out_bytes", c_int64),
    ]


class Codec(Structure):
    """dtrain_codec_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("name", c_char_p),
        ("coded_bytes", CFUNCTYPE(c_int64, c_void_p, c_int64)),
        ("encode", CFUNCTYPE(None, c_void_p, POINTER(c_float), c_int64, c_void_p)),
        ("decode", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int64, POINTER(c_float))),
        ("user", c_void_p),
    ]


class Options(Structure):
    """dtrain_options_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("op", c_int),
        ("prescale", c_double),
        ("postscale", c_double),
        ("pset", c_int32),
        ("priority", c_int32),
        ("timeout_ms", c_int32),
        ("reserved", c_uint32),
        ("callback", CallbackFn),
        ("user", c_void_p),
        ("codec", POINTER(Codec)),
    ]


class Sparse(Structure):
    """dtrain_sparse_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_int32),
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("indices", POINTER(c_int64)),
        ("values", c_void_p),
        ("nnz", c_int64),
        ("dtype", c_int),
        ("device", c_int32),
        ("stream", c_void_p),
    ]


class SamplerDesc(Structure):
    """dtrain_sampler_desc_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("order", c_int32),
        ("num_samples", c_int64),
        ("global_batch", c_int64),
        ("seed", c_uint64),
        ("last_batch", c_int32),
        ("rank", c_int32),
        ("size", c_int32),
        ("reserved", c_uint32),
    ]


class Batch(Structure):
    """dtrain_batch_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("epoch", c_int64),
        ("batch", c_int64),
        ("num_batches", c_int64),
        ("count", c_int64),
        ("first", c_int64),
        ("global_count", c_int64),
    ]


class SamplerState(Structure):
    """dtrain_sampler_state_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("order", c_int32),
        ("last_batch", c_int32),
        ("reserved", c_uint32),
        ("num_samples", c_int64),
        ("global_batch", c_int64),
        ("seed", c_uint64),
        ("epoch", c_int64),
        ("batch", c_int64),
    ]


class Param(Structure):
    """dtrain_param_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("ndim", c_int32),
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("dtype", c_int),
        ("gradient_dtype", c_int),
        ("data", c_void_p),
        ("gradient", c_void_p),
    ]


class GradsetDesc(Structure):
    """dtrain_gradset_desc_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("op", c_int),
        ("name", c_char_p),
        ("prescale", c_double),
        ("postscale", c_double),
        ("pset", c_int32),
        ("timeout_ms", c_int32),
        ("first_bucket_bytes", c_int64),
        ("bucket_bytes", c_int64),
        ("order", POINTER(c_int32)),
        ("fixed_order", c_int32),
        ("reserved", c_uint32),
        ("codec", POINTER(Codec)),
        ("device", c_int32),
        ("reserved2", c_uint32),
    ]


class GradsetStats(Structure):
    """dtrain_gradset_stats_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("num_params", c_int32),
        ("num_buckets", c_int32),
        ("is_frozen", c_int32),
        ("bytes", c_int64),
        ("steps", c_int64),
        ("num_missing", c_int64),
        ("waited_ns", c_int64),
        ("copied_bytes", c_int64),
    ]


class Update(Structure):
    """dtrain_update_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("param", c_int32),
        ("begin", c_int64),
        ("count", c_int64),
        ("step", c_int64),
        ("learning_rate", c_double),
        ("scale", c_double),
        ("dtype", c_int),
        ("gradient_dtype", c_int),
        ("gradients", c_void_p),
        ("values", c_void_p),
        ("states", c_void_p * 4),
        ("device", c_int32),
        ("reserved", c_uint32),
        ("stream", c_void_p),
    ]

UpdateFn = CFUNCTYPE(None, POINTER(Update), c_void_p)


class OptimizerDesc(Structure):
    """dtrain_optimizer_desc_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("rule", c_int32),
        ("sharded", c_int32),
        ("nesterov", c_int32),
        ("momentum", c_double),
        ("weight_decay", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("max_norm", c_double),
        ("loss_scale", c_double),
        ("growth_interval", c_int32),
        ("num_states", c_int32),
        ("update", UpdateFn),
        ("user", c_void_p),
    ]


class StepInfo(Structure):
    """dtrain_step_info_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("skipped", c_int32),
        ("step", c_int64),
        ("norm", c_double),
        ("clip", c_double),
        ("loss_scale", c_double),
    ]


class OptimizerStats(Structure):
    """dtrain_optimizer_stats_t"""
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("state_bytes", c_int64),
        ("updated_ns", c_int64),
        ("gathered_ns", c_int64),
        ("copied_bytes", c_int64),
    ]


# C name: class, of structs that callers see into.
STRUCTS = {
    "dtrain_config_t": Config,
    "dtrain_tensor_t": Tensor,
    "dtrain_codec_t": Codec,
    "dtrain_options_t": Options,
    "dtrain_sparse_t": Sparse,
    "dtrain_sampler_desc_t": SamplerDesc,
    "dtrain_batch_t": Batch,
    "dtrain_sampler_state_t": SamplerState,
    "dtrain_param_t": Param,
    "dtrain_gradset_desc_t": GradsetDesc,
    "dtrain_gradset_stats_t": GradsetStats,
    "dtrain_update_t": Update,
    "dtrain_optimizer_desc_t": OptimizerDesc,
    "dtrain_step_info_t": StepInfo,
    "dtrain_optimizer_stats_t": OptimizerStats,
}

# Name: (result, [parameters])
FUNCTIONS = {
    "dtrain_status_string": (c_char_p, [c_int]),
    "dtrain_last_error": (c_char_p, []),
    "dtrain_version": (c_int, []),
    "dtrain_version_string": (c_char_p, []),
    "dtrain_built": (c_int, [c_int]),
    "dtrain_config_init": (c_int, [POINTER(Config), c_size_t]),
    "dtrain_config_set": (c_int, [POINTER(Config), c_char_p, c_char_p]),
    "dtrain_init": (c_int, [POINTER(Config)]),
    "dtrain_shutdown": (c_int, []),
    "dtrain_is_initialized": (c_int, []),
    "dtrain_abort": (c_int, [c_int, c_char_p]),
    "dtrain_rank": (c_int, []),
    "dtrain_size": (c_int, []),
    "dtrain_local_rank": (c_int, []),
    "dtrain_local_size": (c_int, []),
    "dtrain_cross_rank": (c_int, []),
    "dtrain_cross_size": (c_int, []),
    "dtrain_is_homogeneous": (c_int, []),
    "dtrain_mem_alloc": (c_int, [POINTER(c_void_p), c_size_t, c_int]),
    "dtrain_mem_free": (c_int, [c_void_p]),
    "dtrain_dtype_size": (c_size_t, [c_int]),
    "dtrain_dtype_name": (c_char_p, [c_int]),
    "dtrain_op_name": (c_char_p, [c_int]),
    "dtrain_allreduce_async": (c_int, [POINTER(Tensor), POINTER(Options), POINTER(c_uint64)]),
    "dtrain_broadcast_async": (
        c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_reduce_async": (c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_reducescatter_async": (c_int, [POINTER(Tensor), POINTER(Options), POINTER(c_uint64)]),
    "dtrain_allgather_async": (c_int, [POINTER(Tensor), POINTER(Options), POINTER(c_uint64)]),
    "dtrain_gather_async": (c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_scatter_async": (c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_alltoall_async": (
        c_int, [POINTER(Tensor), POINTER(c_int64), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_send_async": (c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_recv_async": (c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_grouped_allreduce_async": (
        c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_grouped_allgather_async": (
        c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_grouped_reducescatter_async": (
        c_int, [POINTER(Tensor), c_int, POINTER(Options), POINTER(c_uint64)]),
    "dtrain_sparse_allreduce_async": (
        c_int, [POINTER(Sparse), POINTER(Options), POINTER(c_uint64)]),
    "dtrain_sparse_output": (
        c_int, [c_uint64, POINTER(POINTER(c_int64)), POINTER(c_void_p), POINTER(c_int64)]),
    "dtrain_barrier_async": (c_int, [POINTER(Options), POINTER(c_uint64)]),
    "dtrain_refuse": (c_int, [POINTER(c_char_p), c_int, c_int32, c_char_p]),
    "dtrain_allreduce": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_broadcast": (c_int, [c_char_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_reduce": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int, c_int, c_int]),
    "dtrain_reducescatter": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_allgather": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int]),
    "dtrain_alltoall": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int]),
    "dtrain_gather": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_scatter": (c_int, [c_char_p, c_void_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_send": (c_int, [c_char_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_recv": (c_int, [c_char_p, c_void_p, c_int64, c_int, c_int]),
    "dtrain_barrier": (c_int, []),
    "dtrain_poll": (c_int, [c_uint64, POINTER(c_int)]),
    "dtrain_wait": (c_int, [c_uint64]),
    "dtrain_wait_for": (c_int, [c_uint64, c_int]),
    "dtrain_wait_all": (c_int, [POINTER(c_uint64), c_int, POINTER(c_int)]),
    "dtrain_wait_any": (c_int, [POINTER(c_uint64), c_int, POINTER(c_int)]),
    "dtrain_output": (c_int, [c_uint64, POINTER(c_void_p), POINTER(c_int64), POINTER(c_int)]),
    "dtrain_recv_splits": (c_int, [c_uint64, POINTER(c_int64), c_int]),
    "dtrain_release": (c_int, [c_uint64]),
    "dtrain_handle_error": (c_int, [c_uint64, c_char_p, c_size_t]),
    "dtrain_codec_create": (c_int, [c_char_p, POINTER(POINTER(Codec))]),
    "dtrain_codec_destroy": (None, [POINTER(Codec)]),
    "dtrain_sampler_create": (c_int, [POINTER(SamplerDesc), POINTER(c_void_p)]),
    "dtrain_sampler_destroy": (None, [c_void_p]),
    "dtrain_sampler_next": (c_int, [c_void_p, POINTER(c_int64), c_int64, POINTER(Batch)]),
    "dtrain_sampler_seek": (c_int, [c_void_p, c_int64, c_int64]),
    "dtrain_sampler_save": (c_int, [c_void_p, POINTER(SamplerState)]),
    "dtrain_sampler_restore": (c_int, [c_void_p, POINTER(SamplerState)]),
    "dtrain_gradset_create": (
        c_int, [POINTER(GradsetDesc), POINTER(Param), c_int, POINTER(c_void_p)]),
    "dtrain_gradset_destroy": (c_int, [c_void_p]),
    "dtrain_gradset_buffer": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "dtrain_gradset_ready": (c_int, [c_void_p, c_int, c_void_p]),
    "dtrain_gradset_ready_n": (c_int, [c_void_p, POINTER(c_int), c_int, c_void_p]),
    "dtrain_gradset_unused": (c_int, [c_void_p, c_int]),
    "dtrain_gradset_wait": (c_int, [c_void_p]),
    "dtrain_gradset_wait_one": (c_int, [c_void_p, c_int]),
    "dtrain_gradset_clip": (c_int, [c_void_p, c_double, POINTER(c_double)]),
    "dtrain_gradset_set_accumulation": (c_int, [c_void_p, c_int]),
    "dtrain_gradset_sync_enable": (c_int, [c_void_p, c_int]),
    "dtrain_gradset_get_stats": (c_int, [c_void_p, POINTER(GradsetStats)]),
    "dtrain_optimizer_create": (c_int, [c_void_p, POINTER(OptimizerDesc), POINTER(c_void_p)]),
    "dtrain_optimizer_destroy": (None, [c_void_p]),
    "dtrain_optimizer_param": (c_int, [c_void_p, c_int, POINTER(c_void_p)]),
    "dtrain_optimizer_step": (c_int, [c_void_p, c_double, POINTER(StepInfo)]),
    "dtrain_optimizer_broadcast": (c_int, [c_void_p, c_int]),
    "dtrain_optimizer_save": (c_int, [c_void_p, c_char_p, c_int]),
    "dtrain_optimizer_load": (c_int, [c_void_p, c_char_p, c_int]),
    "dtrain_optimizer_get_stats": (c_int, [c_void_p, POINTER(OptimizerStats)]),
    "dtrain_broadcast_params": (c_int, [POINTER(Param), c_int, c_int]),
    "dtrain_pset_add": (c_int, [POINTER(c_int), c_int, POINTER(c_int32)]),
    "dtrain_pset_remove": (c_int, [c_int32]),
    "dtrain_pset_rank": (c_int, [c_int32, POINTER(c_int)]),
    "dtrain_pset_size": (c_int, [c_int32, POINTER(c_int)]),
    "dtrain_pset_included": (c_int, [c_int32, POINTER(c_int)]),
    "dtrain_pset_ranks": (c_int, [c_int32, POINTER(c_int), c_int, POINTER(c_int)]),
    "dtrain_join_async": (c_int, [POINTER(Options), POINTER(c_uint64)]),
    "dtrain_join_last_rank": (c_int, [c_uint64, POINTER(c_int)]),
    "dtrain_join": (c_int, [POINTER(c_int)]),
    "dtrain_agree_stop": (c_int, [c_int, POINTER(c_int)]),
    "dtrain_check_equal": (c_int, [POINTER(Tensor), c_int, POINTER(Options)]),
    "dtrain_flight_dump": (c_int, [c_char_p]),
    "dtrain_set_log_callback": (None, [LogFn, c_void_p]),
    "dtrain_stream_wait": (c_int, [c_uint64, c_void_p]),
    "dtrain_cuda_device": (c_int, [POINTER(c_int)]),
    "dtrain_cuda_broadcast_params": (c_int, [POINTER(Param), c_int, c_int, c_void_p]),
    "dtrain_gradset_stream_wait": (c_int, [c_void_p, c_void_p]),
    "dtrain_optimizer_stream_step": (c_int, [c_void_p, c_double, c_void_p, POINTER(StepInfo)]),
}
