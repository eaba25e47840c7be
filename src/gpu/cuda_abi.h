#ifndef STK_CUDA_ABI_H
#define STK_CUDA_ABI_H

// The part of the CUDA driver's binary interface that this library uses, in
// our own words, so that no toolkit is needed to build. Names and values are
// the driver's. Everything is a list, because each list is read twice: here,
// to make the types, and by tests/headers/test_cuda_abi.c, which defines
// STK_CUDA_ABI_LISTS_ONLY, includes cuda.h instead, and compares.
//
// The functions are in driver_list.h.

#include <stddef.h>
#include <stdint.h>

// clang-format off

// CUresult: enumerator, value.
#define STK_CU_RESULTS(X)                                                 \
    X(CUDA_SUCCESS,                                0)                     \
    X(CUDA_ERROR_INVALID_VALUE,                    1)                     \
    X(CUDA_ERROR_OUT_OF_MEMORY,                    2)                     \
    X(CUDA_ERROR_NOT_INITIALIZED,                  3)                     \
    X(CUDA_ERROR_DEINITIALIZED,                    4)                     \
    X(CUDA_ERROR_PROFILER_DISABLED,                5)                     \
    X(CUDA_ERROR_PROFILER_NOT_INITIALIZED,         6)                     \
    X(CUDA_ERROR_PROFILER_ALREADY_STARTED,         7)                     \
    X(CUDA_ERROR_PROFILER_ALREADY_STOPPED,         8)                     \
    X(CUDA_ERROR_STUB_LIBRARY,                    34)                     \
    X(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,      36)                     \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE,              46)                     \
    X(CUDA_ERROR_NO_DEVICE,                      100)                     \
    X(CUDA_ERROR_INVALID_DEVICE,                 101)                     \
    X(CUDA_ERROR_DEVICE_NOT_LICENSED,            102)                     \
    X(CUDA_ERROR_INVALID_IMAGE,                  200)                     \
    X(CUDA_ERROR_INVALID_CONTEXT,                201)                     \
    X(CUDA_ERROR_CONTEXT_ALREADY_CURRENT,        202)                     \
    X(CUDA_ERROR_MAP_FAILED,                     205)                     \
    X(CUDA_ERROR_UNMAP_FAILED,                   206)                     \
    X(CUDA_ERROR_ARRAY_IS_MAPPED,                207)                     \
    X(CUDA_ERROR_ALREADY_MAPPED,                 208)                     \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU,              209)                     \
    X(CUDA_ERROR_ALREADY_ACQUIRED,               210)                     \
    X(CUDA_ERROR_NOT_MAPPED,                     211)                     \
    X(CUDA_ERROR_NOT_MAPPED_AS_ARRAY,            212)                     \
    X(CUDA_ERROR_NOT_MAPPED_AS_POINTER,          213)                     \
    X(CUDA_ERROR_ECC_UNCORRECTABLE,              214)                     \
    X(CUDA_ERROR_UNSUPPORTED_LIMIT,              215)                     \
    X(CUDA_ERROR_CONTEXT_ALREADY_IN_USE,         216)                     \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,        217)                     \
    X(CUDA_ERROR_INVALID_PTX,                    218)                     \
    X(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,       219)                     \
    X(CUDA_ERROR_NVLINK_UNCORRECTABLE,           220)                     \
    X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND,         221)                     \
    X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,        222)                     \
    X(CUDA_ERROR_JIT_COMPILATION_DISABLED,       223)                     \
    X(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,      224)                     \
    X(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,       225)                     \
    X(CUDA_ERROR_CONTAINED,                      226)                     \
    X(CUDA_ERROR_INVALID_SOURCE,                 300)                     \
    X(CUDA_ERROR_FILE_NOT_FOUND,                 301)                     \
    X(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, 302)                     \
    X(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,      303)                     \
    X(CUDA_ERROR_OPERATING_SYSTEM,               304)                     \
    X(CUDA_ERROR_INVALID_HANDLE,                 400)                     \
    X(CUDA_ERROR_ILLEGAL_STATE,                  401)                     \
    X(CUDA_ERROR_LOSSY_QUERY,                    402)                     \
    X(CUDA_ERROR_NOT_FOUND,                      500)                     \
    X(CUDA_ERROR_NOT_READY,                      600)                     \
    X(CUDA_ERROR_ILLEGAL_ADDRESS,                700)                     \
    X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,        701)                     \
    X(CUDA_ERROR_LAUNCH_TIMEOUT,                 702)                     \
    X(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,  703)                     \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,    704)                     \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,        705)                     \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,         708)                     \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED,           709)                     \
    X(CUDA_ERROR_ASSERT,                         710)                     \
    X(CUDA_ERROR_TOO_MANY_PEERS,                 711)                     \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                     \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,     713)                     \
    X(CUDA_ERROR_HARDWARE_STACK_ERROR,           714)                     \
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION,            715)                     \
    X(CUDA_ERROR_MISALIGNED_ADDRESS,             716)                     \
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE,          717)                     \
    X(CUDA_ERROR_INVALID_PC,                     718)                     \
    X(CUDA_ERROR_LAUNCH_FAILED,                  719)                     \
    X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,   720)                     \
    X(CUDA_ERROR_TENSOR_MEMORY_LEAK,             721)                     \
    X(CUDA_ERROR_NOT_PERMITTED,                  800)                     \
    X(CUDA_ERROR_NOT_SUPPORTED,                  801)                     \
    X(CUDA_ERROR_SYSTEM_NOT_READY,               802)                     \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,         803)                     \
    X(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804)                     \
    X(CUDA_ERROR_MPS_CONNECTION_FAILED,          805)                     \
    X(CUDA_ERROR_MPS_RPC_FAILURE,                806)                     \
    X(CUDA_ERROR_MPS_SERVER_NOT_READY,           807)                     \
    X(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,        808)                     \
    X(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,    809)                     \
    X(CUDA_ERROR_MPS_CLIENT_TERMINATED,          810)                     \
    X(CUDA_ERROR_CDP_NOT_SUPPORTED,              811)                     \
    X(CUDA_ERROR_CDP_VERSION_MISMATCH,           812)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,     900)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,     901)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_MERGE,           902)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,       903)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,        904)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,       905)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,        906)                     \
    X(CUDA_ERROR_CAPTURED_EVENT,                 907)                     \
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,    908)                     \
    X(CUDA_ERROR_TIMEOUT,                        909)                     \
    X(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,      910)                     \
    X(CUDA_ERROR_EXTERNAL_DEVICE,                911)                     \
    X(CUDA_ERROR_INVALID_CLUSTER_SIZE,           912)                     \
    X(CUDA_ERROR_FUNCTION_NOT_LOADED,            913)                     \
    X(CUDA_ERROR_INVALID_RESOURCE_TYPE,          914)                     \
    X(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, 915)                     \
    X(CUDA_ERROR_KEY_ROTATION,                   916)                     \
    X(CUDA_ERROR_UNKNOWN,                        999)

// CUdevice_attribute: enumerator, value.
#define STK_CU_ATTRIBUTES(X)                                              \
    X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,        1)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,              2)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,              3)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,              4)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,               5)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,               6)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,               7)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,  8)                \
    X(CU_DEVICE_ATTRIBUTE_WARP_SIZE,                   10)                \
    X(CU_DEVICE_ATTRIBUTE_MAX_PITCH,                   11)                \
    X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,        16)                \
    X(CU_DEVICE_ATTRIBUTE_INTEGRATED,                  18)                \
    X(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY,         19)                \
    X(CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS,          31)                \
    X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT,          40)                \
    X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING,          41)                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,    75)                \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,    76)                \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)       \
    X(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,          124)

// CUmemorytype: enumerator, value.
#define STK_CU_MEMORYTYPES(X)                                             \
    X(CU_MEMORYTYPE_HOST,    1)                                           \
    X(CU_MEMORYTYPE_DEVICE,  2)                                           \
    X(CU_MEMORYTYPE_ARRAY,   3)                                           \
    X(CU_MEMORYTYPE_UNIFIED, 4)

// The enumerations of virtual memory and of memory that is shared, as far as
// they are used: enumerator, value.
#define STK_CU_MEM_LOCATIONS(X)                                           \
    X(CU_MEM_LOCATION_TYPE_INVALID, 0)                                    \
    X(CU_MEM_LOCATION_TYPE_DEVICE,  1)
#define STK_CU_MEM_ALLOCATIONS(X)                                         \
    X(CU_MEM_ALLOCATION_TYPE_INVALID, 0)                                  \
    X(CU_MEM_ALLOCATION_TYPE_PINNED,  1)
#define STK_CU_MEM_HANDLES(X)                                             \
    X(CU_MEM_HANDLE_TYPE_NONE,                  0)                        \
    X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)
#define STK_CU_MEM_ACCESSES(X)                                            \
    X(CU_MEM_ACCESS_FLAGS_PROT_NONE,      0)                              \
    X(CU_MEM_ACCESS_FLAGS_PROT_READ,      1)                              \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)
#define STK_CU_MEM_GRANULARITIES(X)                                       \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM,     0)                            \
    X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)
#define STK_CU_MEM_RANGE_HANDLES(X)                                       \
    X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)
#define STK_CU_EXTERNAL_HANDLES(X)                                        \
    X(CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, 1)                        \
    X(CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD, 9)

// Flags of contexts, streams, events and host memory: name, value.
#define STK_CU_CONSTANTS(X)                                               \
    X(CU_CTX_SCHED_AUTO,             0x0)                                 \
    X(CU_CTX_SCHED_SPIN,             0x1)                                 \
    X(CU_CTX_SCHED_YIELD,            0x2)                                 \
    X(CU_CTX_SCHED_BLOCKING_SYNC,    0x4)                                 \
    X(CU_STREAM_DEFAULT,             0x0)                                 \
    X(CU_STREAM_NON_BLOCKING,        0x1)                                 \
    X(CU_EVENT_DEFAULT,              0x0)                                 \
    X(CU_EVENT_BLOCKING_SYNC,        0x1)                                 \
    X(CU_EVENT_DISABLE_TIMING,       0x2)                                 \
    X(CU_EVENT_INTERPROCESS,         0x4)                                 \
    X(CU_EVENT_WAIT_DEFAULT,         0x0)                                 \
    X(CU_MEMHOSTALLOC_PORTABLE,      0x1)                                 \
    X(CU_MEMHOSTALLOC_DEVICEMAP,     0x2)                                 \
    X(CU_MEMHOSTALLOC_WRITECOMBINED, 0x4)                                 \
    X(CU_MEMHOSTREGISTER_PORTABLE,   0x1)                                 \
    X(CU_MEMHOSTREGISTER_DEVICEMAP,  0x2)

// Type, size in bytes.
#define STK_CU_TYPES(X)                                                   \
    X(CUresult,             4)                                            \
    X(CUdevice,             4)                                            \
    X(CUdevice_attribute,   4)                                            \
    X(CUmemorytype,         4)                                            \
    X(CUdeviceptr,          8)                                            \
    X(CUuuid,              16)                                            \
    X(CUcontext,            8)                                            \
    X(CUstream,             8)                                            \
    X(CUevent,              8)                                            \
    X(CUmodule,             8)                                            \
    X(CUfunction,           8)                                            \
    X(CUarray,              8)                                            \
    X(CUDA_MEMCPY2D,      128)                                            \
    X(CUmemLocationType,            4)                                    \
    X(CUmemAllocationType,          4)                                    \
    X(CUmemAllocationHandleType,    4)                                    \
    X(CUmemAccess_flags,            4)                                    \
    X(CUmemAllocationGranularity_flags, 4)                                \
    X(CUmemRangeHandleType,         4)                                    \
    X(CUexternalMemoryHandleType,   4)                                    \
    X(CUmemGenericAllocationHandle, 8)                                    \
    X(CUexternalMemory,             8)                                    \
    X(CUmemLocation,                8)                                    \
    X(CUmemAllocationProp,         32)                                    \
    X(CUmemAccessDesc,             12)                                    \
    X(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, 104)                              \
    X(CUDA_EXTERNAL_MEMORY_BUFFER_DESC,  88)

// Struct, field, offset in bytes.
#define STK_CU_FIELDS(X)                                                  \
    X(CUuuid,        bytes,           0)                                  \
    X(CUDA_MEMCPY2D, srcXInBytes,     0)                                  \
    X(CUDA_MEMCPY2D, srcY,            8)                                  \
    X(CUDA_MEMCPY2D, srcMemoryType,  16)                                  \
    X(CUDA_MEMCPY2D, srcHost,        24)                                  \
    X(CUDA_MEMCPY2D, srcDevice,      32)                                  \
    X(CUDA_MEMCPY2D, srcArray,       40)                                  \
    X(CUDA_MEMCPY2D, srcPitch,       48)                                  \
    X(CUDA_MEMCPY2D, dstXInBytes,    56)                                  \
    X(CUDA_MEMCPY2D, dstY,           64)                                  \
    X(CUDA_MEMCPY2D, dstMemoryType,  72)                                  \
    X(CUDA_MEMCPY2D, dstHost,        80)                                  \
    X(CUDA_MEMCPY2D, dstDevice,      88)                                  \
    X(CUDA_MEMCPY2D, dstArray,       96)                                  \
    X(CUDA_MEMCPY2D, dstPitch,      104)                                  \
    X(CUDA_MEMCPY2D, WidthInBytes,  112)                                  \
    X(CUDA_MEMCPY2D, Height,        120)                                  \
    X(CUmemLocation, type,            0)                                  \
    X(CUmemLocation, id,              4)                                  \
    X(CUmemAllocationProp, type,                  0)                      \
    X(CUmemAllocationProp, requestedHandleTypes,  4)                      \
    X(CUmemAllocationProp, location,              8)                      \
    X(CUmemAllocationProp, win32HandleMetaData,  16)                      \
    X(CUmemAllocationProp, allocFlags,           24)                      \
    X(CUmemAccessDesc, location,      0)                                  \
    X(CUmemAccessDesc, flags,         8)                                  \
    X(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, type,      0)                     \
    X(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle,    8)                     \
    X(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size,     24)                     \
    X(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, flags,    32)                     \
    X(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, reserved, 36)                     \
    X(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, offset,    0)                     \
    X(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size,      8)                     \
    X(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, flags,    16)                     \
    X(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, reserved, 20)

// clang-format on

#ifndef STK_CUDA_ABI_LISTS_ONLY

#define STK_CU_ENUMERATOR(name, value) name = value,

typedef enum cudaError_enum { STK_CU_RESULTS(STK_CU_ENUMERATOR) } CUresult;
typedef enum CUdevice_attribute_enum {
    STK_CU_ATTRIBUTES(STK_CU_ENUMERATOR)
} CUdevice_attribute;
typedef enum CUmemorytype_enum {
    STK_CU_MEMORYTYPES(STK_CU_ENUMERATOR)
} CUmemorytype;
typedef enum CUmemLocationType_enum {
    STK_CU_MEM_LOCATIONS(STK_CU_ENUMERATOR)
} CUmemLocationType;
typedef enum CUmemAllocationType_enum {
    STK_CU_MEM_ALLOCATIONS(STK_CU_ENUMERATOR)
} CUmemAllocationType;
typedef enum CUmemAllocationHandleType_enum {
    STK_CU_MEM_HANDLES(STK_CU_ENUMERATOR)
} CUmemAllocationHandleType;
typedef enum CUmemAccess_flags_enum {
    STK_CU_MEM_ACCESSES(STK_CU_ENUMERATOR)
} CUmemAccess_flags;
typedef enum CUmemAllocationGranularity_flags_enum {
    STK_CU_MEM_GRANULARITIES(STK_CU_ENUMERATOR)
} CUmemAllocationGranularity_flags;
typedef enum CUmemRangeHandleType_enum {
    STK_CU_MEM_RANGE_HANDLES(STK_CU_ENUMERATOR)
} CUmemRangeHandleType;
typedef enum CUexternalMemoryHandleType_enum {
    STK_CU_EXTERNAL_HANDLES(STK_CU_ENUMERATOR)
} CUexternalMemoryHandleType;
enum stk_cu_constant { STK_CU_CONSTANTS(STK_CU_ENUMERATOR) };

#undef STK_CU_ENUMERATOR

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUuuid_st {
    char bytes[16];
} CUuuid;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUarray_st *CUarray;

// A copy of `Height` rows of `WidthInBytes` bytes. Pitches in bytes; which of
// host, device and array is meant is told by the memory type.
typedef struct CUDA_MEMCPY2D_st {
    size_t srcXInBytes, srcY;
    CUmemorytype srcMemoryType;
    const void *srcHost;
    CUdeviceptr srcDevice;
    CUarray srcArray;
    size_t srcPitch;

    size_t dstXInBytes, dstY;
    CUmemorytype dstMemoryType;
    void *dstHost;
    CUdeviceptr dstDevice;
    CUarray dstArray;
    size_t dstPitch;

    size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

// Physical memory, and where and for whom it is.
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUmemLocation_st {
    CUmemLocationType type;
    int id;  // ordinal of the device
} CUmemLocation;
typedef struct CUmemAllocationProp_st {
    CUmemAllocationType type;
    CUmemAllocationHandleType requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType, gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
} CUmemAllocationProp;
typedef struct CUmemAccessDesc_st {
    CUmemLocation location;
    CUmemAccess_flags flags;
} CUmemAccessDesc;

// Memory of somebody else, and the part of it that is mapped.
typedef struct CUextMemory_st *CUexternalMemory;
typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st {
    CUexternalMemoryHandleType type;
    union {
        int fd;
        struct {
            void *handle;
            const void *name;
        } win32;
        const void *nvSciBufObject;
    } handle;
    unsigned long long size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_MEMORY_BUFFER_DESC_st {
    unsigned long long offset, size;
    unsigned int flags;
    unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;

#define STK_CU_SIZE(type, size)                                                \
    _Static_assert(sizeof(type) == size, #type " has another size");
STK_CU_TYPES(STK_CU_SIZE)
#undef STK_CU_SIZE

#define STK_CU_OFFSET(type, field, offset)                                     \
    _Static_assert(offsetof(type, field) == offset,                            \
                   #type "." #field " lies elsewhere");
STK_CU_FIELDS(STK_CU_OFFSET)
#undef STK_CU_OFFSET

#endif  // STK_CUDA_ABI_LISTS_ONLY

#endif  // STK_CUDA_ABI_H
