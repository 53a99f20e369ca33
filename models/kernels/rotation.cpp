#include "models/kernels/rotation.hpp"

#include <cstdint>

#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

template <typename T>
struct Rotation {
    const T* input;
    const T* cos;
    const T* sin;
    T* out;
    std::int64_t columns;
    std::int64_t heads;
    std::int64_t half;  ///< D / 2
    Wide<T> direction;

    /// Items are positions: [begin, end) of B · T.
    DISTILLD_INLINE static void run(const Rotation* all, std::int64_t begin, std::int64_t end) {
        const Rotation work = *all;
        const std::int64_t half = work.half;
        for (std::int64_t position = begin; position < end; ++position) {
            const T* cos = work.cos + position % work.columns * half;
            const T* sin = work.sin + position % work.columns * half;
            for (std::int64_t head = 0; head < work.heads; ++head) {
                const std::int64_t offset = (position * work.heads + head) * 2 * half;
                const T* first = work.input + offset;
                const T* second = first + half;
                T* out = work.out + offset;
                for (std::int64_t i = 0; i < half; ++i) {
                    const Wide<T> c = widened(cos[i]);
                    const Wide<T> s = widened(sin[i]) * work.direction;
                    const Wide<T> a = widened(first[i]);
                    const Wide<T> b = widened(second[i]);
                    out[i] = narrowed<T>(rounded<T>(a * c) - rounded<T>(b * s));
                    out[half + i] = narrowed<T>(rounded<T>(b * c) + rounded<T>(a * s));
                }
            }
        }
    }
};

}  // namespace

Tensor rotated(const Tensor& input, const Tensor& cos, const Tensor& sin, int direction) {
    Tensor out = torch::empty_like(input);
    const std::int64_t heads = input.size(2);
    const std::int64_t size = input.size(3);
    with_element_type(input.scalar_type(), [&]<typename T>() {
        const Rotation<T> work{elements<T>(input), elements<T>(cos),
                               elements<T>(sin),   mutable_elements<T>(out),
                               input.size(1),      heads,
                               size / 2,           static_cast<Wide<T>>(direction)};
        in_parallel(input.size(0) * input.size(1), grain_of(heads * size),
                    [&work](std::int64_t begin, std::int64_t end) { run_widest<Rotation<T>>(&work, begin, end); });
    });
    return out;
}

}  // namespace distilld::kernels
