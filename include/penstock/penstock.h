#ifndef PEN_PENSTOCK_H
#define PEN_PENSTOCK_H

// Everything that a program which plans and runs pipelines needs. Authors of
// modules include module.h, authors of kernels kernel.h.

#include <penstock/base.h>
#include <penstock/calibrate.h>
#include <penstock/description.h>
#include <penstock/device.h>
#include <penstock/format.h>
#include <penstock/frame.h>
#include <penstock/issue.h>
#include <penstock/ledger.h>
#include <penstock/log.h>
#include <penstock/module.h>
#include <penstock/pipeline.h>
#include <penstock/plan.h>
#include <penstock/pool.h>
#include <penstock/registry.h>
#include <penstock/status.h>

#endif  // PEN_PENSTOCK_H
