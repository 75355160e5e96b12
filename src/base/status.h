/* status.h - error texts: the place that first sees a failure writes the text, callers pass the
 * code on. */
#ifndef DT_BASE_STATUS_H
#define DT_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

#include <dtrain/dtrain.h>

/* The short fixed text of a status: dtrain_status_string. */
const char *dt_status_string(dtrain_status_t status);

/* Longest error text, with its final zero; longer ones are cut. */
#define DT_ERROR_MAX 1024

/*
 * Stores a formatted text as this thread's last error and returns `status`, so that a failing
 * function ends with `return dt_fail(DTRAIN_ERR_…, "…", …);`.
 */
dtrain_status_t dt_fail(dtrain_status_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* This thread's last error text; "" when there was none. */
const char *dt_last_error(void);

#endif
