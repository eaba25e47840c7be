// Every place that waits for a point in stream time, or decides that it need
// not: one line each. All of them ask stk_point_pending(), and a build with
// -Dwait_sites=true can be told by PENSTOCK_TEST_NO_WAIT=<number> to leave one
// of them out; scripts/wait-sites then shows which tests fail without it.
// Numbers are those of the lines, from 1. Included with different X.
//
// X(id, what goes wrong without it)
// clang-format off
X(STREAM_READ,       "a stream reads what another one is still writing")
X(STREAM_OVERWRITE,  "a stream overwrites what another one is still writing")
X(STREAM_REUSE,      "a stream overwrites what another one is still reading")
X(HOST_READ,         "the host reads what a stream is still writing")
X(HOST_OVERWRITE,    "the host overwrites what a stream is still writing")
X(HOST_REUSE,        "the host overwrites what a stream is still reading")
X(READER_SLOT,       "the use by one more stream than a buffer can note is forgotten")
X(RELEASE,           "memory is given back that a stream still uses")
X(SETTLE,            "a pool's free blocks are given back while a stream uses them")
X(GROW,              "a free block is replaced by a larger one while a stream uses it")
X(EVENT_REUSE,       "an event is recorded again before its point is reached")
X(STAGING,           "host bytes on their way to the device are overwritten")
X(PARK,              "a module that waits for the stream goes on before it")
X(TEARDOWN,          "modules and memory go while the device works on them")
X(STREAM_END,        "a stream is gone before its last work is done")
X(UNMAP,             "memory that can grow is unmapped while a stream uses it")
X(CONTEXT,           "a module that waits for the context goes on before it")
// clang-format on
