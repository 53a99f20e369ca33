#include "models/kernels/accumulate.hpp"

#include <cstdint>

#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {
namespace {

struct Addition {
    float* total;
    const c10::BFloat16* addition;

    DISTILLD_INLINE static void run(const Addition* all, std::int64_t begin, std::int64_t end) {
        const Addition work = *all;
        for (std::int64_t i = begin; i < end; ++i) {
            work.total[i] += widened(work.addition[i]);
        }
    }
};

void add_converted(torch::Tensor& total, const torch::Tensor& addition) {
    TORCH_CHECK(total.sizes() == addition.sizes(), "accumulate: ", total.sizes(), " and ", addition.sizes());
    const Addition work{mutable_elements<float>(total), elements<c10::BFloat16>(addition)};
    in_parallel(total.numel(), grain_of(1),
                [&work](std::int64_t begin, std::int64_t end) { run_widest<Addition>(&work, begin, end); });
}

}  // namespace

void accumulate(torch::Tensor& total, const torch::Tensor& gradient, torch::ScalarType type) {
    if (!total.defined()) {
        total = gradient.to(type).contiguous();
    } else if (total.is_cpu() && total.is_contiguous() && type == torch::kFloat &&
               gradient.scalar_type() == torch::kBFloat16) {
        add_converted(total, gradient.contiguous());
    } else {
        total.add_(gradient);
    }
}

}  // namespace distilld::kernels
