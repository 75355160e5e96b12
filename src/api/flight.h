/* flight.h - the signal on which a dump of the last operations is written. */
#ifndef DT_API_FLIGHT_H
#define DT_API_FLIGHT_H

#include "core/runtime.h"

/* Where the settings name a signal: catches it, and starts the thread that writes, since nothing
 * may be written in a handler. OUT_OF_MEMORY. Once a world. */
dtrain_status_t dt_flight_watch_start(dt_runtime_t *runtime);

/* Gives the signal back, unless the program has taken it over meanwhile, and ends the thread. */
void dt_flight_watch_stop(void);

#endif
