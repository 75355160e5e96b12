/* report.h - what a rank tells rank 0 of the operations that were submitted on it: see wire.h. */
#ifndef DT_CORE_REPORT_H
#define DT_CORE_REPORT_H

#include "base/buffer.h"
#include "core/operation.h"

/* Writes the report of the operations from `first` on: a bit for each that has an id, the id with
 * the stamp where there is one, a request for the others. Failures are in message->failed. */
void dt_report_put(dt_buffer_t *message, const dt_operation_t *first);

/* Writes a report without operations as far as its withdrawals. Returns the place of their number,
 * 0 so far. */
size_t dt_report_put_withdrawals(dt_buffer_t *message);

#endif
