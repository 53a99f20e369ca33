#pragma once

namespace distilld::kernels {

#if defined(__x86_64__)

/// `Kernel::run(arguments…)`, compiled for AVX-512.
template <typename Kernel, typename... Arguments>
[[gnu::target("arch=x86-64-v4")]] void run_v4(Arguments... arguments) {
    Kernel::run(arguments...);
}

/// The same for AVX2.
template <typename Kernel, typename... Arguments>
[[gnu::target("arch=x86-64-v3")]] void run_v3(Arguments... arguments) {
    Kernel::run(arguments...);
}

#endif

/// Calls `Kernel::run(arguments…)`, compiled for the widest vectors that this processor has. `run` and what it calls in
/// its loops must be always_inline; the bits do not depend on the choice if the file is compiled with
/// -ffp-contract=off and its sums are taken in lanes of a fixed number.
template <typename Kernel, typename... Arguments>
void run_widest(Arguments... arguments) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("x86-64-v4")) {
        return run_v4<Kernel>(arguments...);
    }
    if (__builtin_cpu_supports("x86-64-v3")) {
        return run_v3<Kernel>(arguments...);
    }
#endif
    Kernel::run(arguments...);
}

}  // namespace distilld::kernels
