/* nccl_host.c - the texts and log lines of this library are those of the one that loaded it. */
#include "comm/nccl/nccl_host.h"

#include <stdio.h>

#include "base/log.h"
#include "base/status.h"

static const dt_device_host_t *host; /* set once, before all else */

void dt_nccl_set_host(const dt_device_host_t *loader)
{
    host = loader;
}

dtrain_status_t dt_fail(dtrain_status_t status, const char *format, ...)
{
    char text[DT_ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return host->fail(status, text);
}

const char *dt_last_error(void)
{
    return host->last_error();
}

void dt_log(dtrain_log_level_t level, const char *subsystem, const char *format, ...)
{
    char text[DT_ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    host->log(level, subsystem, text);
}
