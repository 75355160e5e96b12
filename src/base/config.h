/* config.h - the table of settings: one row each, from which come the environment's variables,
 * dtrain_config_set and docs/config.md. getenv stands here and nowhere else. */
#ifndef DT_BASE_CONFIG_H
#define DT_BASE_CONFIG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dtrain/dtrain.h>

/* Settings as the library uses them: defaults filled in, nothing left to interpret. */
typedef struct dt_config {
    dtrain_log_level_t log_level;
    int64_t fusion_threshold;    /* bytes; 0: nothing is fused */
    int64_t fusion_tensor_limit; /* bytes */
    int64_t timeout_ns;          /* DT_NEVER: none */
    int64_t stall_warning_ns;    /* DT_NEVER: none */
    int64_t init_timeout_ns;
    int64_t spin_ns; /* 0: none; -1: choose by cores and ranks */
    dtrain_mpi_threads_t mpi_threads;
    char backend[32];           /* "auto", "mpi" or "self" */
    char network_interface[64]; /* "": any */
    dtrain_shared_memory_t shared_memory;
    char isa[16]; /* "auto", or the cap */
    int64_t heartbeat_ns;
    int64_t link_timeout_ns;
    dtrain_join_divisor_t join_divisor;
    char process_sets[512]; /* "0,1;2-3", or "": none */
    char flight_dir[256];   /* "": none */
    char flight_signal[16]; /* "off", or the signal in lower case, as "usr1" */
    dtrain_gpu_t gpu;
    /* Not OK: the settings could not be read, these are defaults, and the thread's last error says
     * why. Joining a world fails with it, on all its ranks. */
    dtrain_status_t fault;
} dt_config_t;

/* The public functions of the same names. */
dtrain_status_t dt_config_init(dtrain_config_t *config, size_t struct_size);
dtrain_status_t dt_config_set(dtrain_config_t *config, const char *key, const char *value);

/*
 * The settings in force: `user` (or NULL), over which go the environment's DTRAIN_* variables,
 * over the defaults. A bad value is CONFIG, and the text names the variable or the field, the
 * value and what is expected. An unknown DTRAIN_* variable earns a warning with the nearest
 * known name. The log level is put in force, so that it holds for these warnings too.
 */
dtrain_status_t dt_config_resolve(const dtrain_config_t *user, dt_config_t *out);

/* The defaults, with a fault. */
void dt_config_faulty(dt_config_t *config, dtrain_status_t fault);

/*
 * Replaces the settings that all ranks must share by rank 0's; each one that differed earns a
 * warning.
 */
void dt_config_adopt_shared(dt_config_t *config, const dt_config_t *rank0);

/* Writes docs/config.md. */
void dt_config_write_markdown(FILE *out);

/*
 * How many processes the launcher says it started, read from the variables that Open MPI, MPICH
 * and Slurm's PMI set; 0 when there is no launcher. *variable is the name of the one that told.
 */
int dt_config_launcher_size(const char **variable);

/* Sets a variable of another library in this process's environment, unless it is set. */
void dt_config_suggest(const char *variable, const char *value);

#endif
