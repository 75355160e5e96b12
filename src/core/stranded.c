#include "core/stranded.h"

#include "base/log.h"
#include "base/status.h"

void dt_strand(void *context, dtrain_status_t status, const char *text)
{
    dt_runtime_t *runtime = context;
    dt_log(DTRAIN_LOG_ERROR, "core", "%s; the engine does not take it in, so it is stuck in a call",
           text);
    runtime->stranded_status = status;
    runtime->stranded_text = text;
    dt_intake_close(&runtime->intake, status, text);
    if (runtime->world.give_up)
        runtime->world.give_up(runtime->world.context);
    atomic_store(&runtime->is_stranded, 1);
    dt_baton_tell_all(runtime);
    dt_dump_on_end(runtime, text);
}

dtrain_status_t dt_stranded_error(const dt_runtime_t *runtime)
{
    return dt_fail(runtime->stranded_status, "%s", runtime->stranded_text);
}
