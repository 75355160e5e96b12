/* log.h - lines to stderr or to the user's sink: level, rank and subsystem before each. */
#ifndef DT_BASE_LOG_H
#define DT_BASE_LOG_H

#include <dtrain/dtrain.h>

/* A line's subsystem is the part of the tree it comes from: "core", "mpi", "config". */
void dt_log(dtrain_log_level_t level, const char *subsystem, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Lines above `level` are dropped before they are formatted. Default: DTRAIN_LOG_WARN. */
void dt_log_set_level(dtrain_log_level_t level);

/* The rank shown in lines; -1, the default, shows none. Per process, as stderr is. */
void dt_log_set_rank(int rank);

void dt_log_set_sink(dtrain_log_fn_t fn, void *user);

#endif
