#pragma once

namespace distilld {

/// Kind of a FailedEvent beside those of ErrorKind: memory ran out, of the machine or of its device.
inline constexpr const char* kOutOfMemory = "out_of_memory";

}  // namespace distilld
