#ifndef STK_FD_H
#define STK_FD_H

// Descriptors in the ledger.

#include <penstock/status.h>

#include "ledger.h"

// Enter a descriptor that was just opened.
void stk_fd_enter(struct stk_ledger *ledger, int fd, const char *owner,
                  const char *site);
// A duplicate with close-on-exec, entered. Errors: PEN_E_IO.
PEN_NODISCARD enum pen_status stk_fd_dup(struct stk_ledger *ledger, int fd,
                                         const char *owner, const char *site,
                                         int *out, struct pen_error *err);
// Strike it out, then close it; *fd is -1 afterwards, and -1 is allowed.
void stk_fd_close(struct stk_ledger *ledger, int *fd);

#endif  // STK_FD_H
