#pragma once

namespace distilld {

/// Kind of a FailedEvent in addition to those of ErrorKind: the machine or its device is out of memory.
inline constexpr const char* kOutOfMemory = "out_of_memory";

}  // namespace distilld
