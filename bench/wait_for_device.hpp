#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace distilld::bench {

/// Waits until the device has executed what it was given; a CPU has.
inline void wait_for(const c10::Device& device) {
    if (!device.is_cpu()) {
        c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
    }
}

}  // namespace distilld::bench
