#include "models/kernels/gated.hpp"

#include <cstdint>

#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

/// About as many elements as are worth waking a thread for: an exponential costs as much as eight sums.
constexpr std::int64_t kGrain = 4096;

template <typename T>
struct Forward {
    const T* gate;
    const T* up;
    T* out;

    DISTILLD_INLINE static void run(const Forward* all, std::int64_t begin, std::int64_t end) {
        const Forward rows = *all;
        for (std::int64_t i = begin; i < end; ++i) {
            const Wide<T> gate = widened(rows.gate[i]);
            rows.out[i] = narrowed<T>(rounded<T>(gate / (1 + exponential(-gate))) * widened(rows.up[i]));
        }
    }
};

template <typename T>
struct Backward {
    const T* gradient;
    const T* gate;
    const T* up;
    T* gate_gradient;
    T* up_gradient;

    DISTILLD_INLINE static void run(const Backward* all, std::int64_t begin, std::int64_t end) {
        const Backward rows = *all;
        for (std::int64_t i = begin; i < end; ++i) {
            const Wide<T> gate = widened(rows.gate[i]);
            const Wide<T> gradient = widened(rows.gradient[i]);
            const Wide<T> sigmoid = 1 / (1 + exponential(-gate));
            rows.up_gradient[i] = narrowed<T>(gradient * rounded<T>(gate * sigmoid));
            rows.gate_gradient[i] = narrowed<T>(gradient * widened(rows.up[i]) * sigmoid * (1 + gate * (1 - sigmoid)));
        }
    }
};

}  // namespace

Tensor silu_gated(const Tensor& gate, const Tensor& up) {
    Tensor out = torch::empty_like(gate);
    with_element_type(gate.scalar_type(), [&]<typename T>() {
        const Forward<T> work{elements<T>(gate), elements<T>(up), mutable_elements<T>(out)};
        in_parallel(gate.numel(), kGrain,
                    [&work](std::int64_t begin, std::int64_t end) { run_widest<Forward<T>>(&work, begin, end); });
    });
    return out;
}

std::pair<Tensor, Tensor> silu_gated_backward(const Tensor& gradient, const Tensor& gate, const Tensor& up) {
    Tensor of_gate = torch::empty_like(gate);
    Tensor of_up = torch::empty_like(up);
    with_element_type(gate.scalar_type(), [&]<typename T>() {
        const Backward<T> work{elements<T>(gradient), elements<T>(gate), elements<T>(up), mutable_elements<T>(of_gate),
                               mutable_elements<T>(of_up)};
        in_parallel(gate.numel(), kGrain,
                    [&work](std::int64_t begin, std::int64_t end) { run_widest<Backward<T>>(&work, begin, end); });
    });
    return {of_gate, of_up};
}

}  // namespace distilld::kernels
