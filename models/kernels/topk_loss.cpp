#include "models/kernels/topk_loss.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

/// Floor for a mass before its log is taken, so that the log is finite.
template <typename Number>
constexpr Number kMinMass = sizeof(Number) == sizeof(double) ? 1e-290 : 1e-30F;

template <typename T>
struct LossRow {
    using W = Wide<T>;

    T* logits;
    const std::int64_t* labels;
    const std::int64_t* ids;  ///< nullptr: none
    const W* probabilities;
    const W* tail_probability;
    const W* negative_entropy;
    double* kl;
    double* ce;
    std::int64_t vocabulary;
    std::int64_t k;
    W ce_factor;
    W kd_factor;
    W temperature;

    /// Memory of one thread.
    struct Scratch {
        std::vector<W> exponentials;  ///< [vocabulary] at the temperature
        std::vector<W> second;        ///< [vocabulary] at temperature 1, if that is another and CE has weight
        std::vector<W> top_shifted;   ///< [k] logits − maximum
        std::vector<W> top_gradient;  ///< [k]
    };

    DISTILLD_INLINE static void run(const LossRow* all, Scratch* scratch, std::int64_t begin, std::int64_t end) {
        const LossRow work = *all;
        for (std::int64_t row = begin; row < end; ++row) {
            work.one_row(row, *scratch);
        }
    }

    /// out[i] = exp((z[i] − maximum) · factor). Locals only, so that the compiler sees that nothing aliases.
    DISTILLD_INLINE static void exponentiate(const T* z, W* out, std::int64_t size, W maximum, W factor) {
        for (std::int64_t i = 0; i < size; ++i) {
            out[i] = exponential((widened(z[i]) - maximum) * factor);
        }
    }

    DISTILLD_INLINE static void write(const W* values, W factor, T* z, std::int64_t size) {
        for (std::int64_t i = 0; i < size; ++i) {
            z[i] = narrowed<T>(values[i] * factor);
        }
    }

    DISTILLD_INLINE static void write(const W* values, W factor, const W* more, W more_factor, T* z,
                                      std::int64_t size) {
        for (std::int64_t i = 0; i < size; ++i) {
            z[i] = narrowed<T>(values[i] * factor + more[i] * more_factor);
        }
    }

    DISTILLD_INLINE void one_row(std::int64_t row, Scratch& scratch) const {
        T* z = logits + row * vocabulary;
        const std::int64_t* top = ids == nullptr ? nullptr : ids + row * k;
        const std::int64_t label = labels[row];
        W* exponentials = scratch.exponentials.data();
        for (std::int64_t i = 0; i < vocabulary; ++i) {
            exponentials[i] = widened(z[i]);
        }
        const W maximum = array_maximum(exponentials, vocabulary);
        const W label_shifted = widened(z[label]) - maximum;
        W* shifted = scratch.top_shifted.data();
        for (std::int64_t j = 0; j < k; ++j) {
            shifted[j] = widened(z[top[j]]) - maximum;
        }
        // The k have buckets of their own: out of the sums over all others, also where these are nearly nothing.
        for (std::int64_t j = 0; j < k; ++j) {
            z[top[j]] = narrowed<T>(-std::numeric_limits<W>::infinity());
        }
        const bool tempered = top != nullptr && temperature != 1;
        const W inverse = tempered ? 1 / temperature : 1;
        exponentiate(z, exponentials, vocabulary, maximum, inverse);
        const W others = array_sum(exponentials, vocabulary);
        const W rest = top == nullptr ? others : std::max(others, kMinMass<W>);
        // NaN in any logit is NaN here: std::max() would keep its first argument, which is NaN.
        W total = rest;
        for (std::int64_t j = 0; j < k; ++j) {
            total += exponential(shifted[j] * inverse);
        }
        const W log_total = std::log(total);
        W per_exponential = 0;   // factor of an exponential in the gradient
        W rest_exponential = 0;  // the same for tokens outside the k
        W* top_gradient = scratch.top_gradient.data();
        const W own_ce = tempered ? W{0} : ce_factor;
        if (top != nullptr) {
            const W* p = probabilities + row * k;
            const W p_tail = tail_probability[row];
            const W kd = kd_factor * temperature;
            W value = negative_entropy[row];
            W mass = p_tail;
            for (std::int64_t j = 0; j < k; ++j) {
                value -= p[j] * (shifted[j] * inverse - log_total);
                mass += p[j];
            }
            value -= p_tail * (std::log(rest) - log_total);
            kl[row] = static_cast<double>(value);
            // Σp is 1 up to rounding; the exact derivative has Σp·q_v.
            per_exponential = (mass * kd + own_ce) / total;
            rest_exponential = per_exponential - p_tail * kd / rest;
            for (std::int64_t j = 0; j < k; ++j) {
                top_gradient[j] = exponential(shifted[j] * inverse) * per_exponential - p[j] * kd;
            }
        } else {
            per_exponential = own_ce / total;
            rest_exponential = per_exponential;
        }
        const bool second = tempered && ce_factor != 0;
        W per_second = 0;
        if (second) {
            exponentiate(z, scratch.second.data(), vocabulary, maximum, W{1});
            W sum = array_sum(scratch.second.data(), vocabulary);
            for (std::int64_t j = 0; j < k; ++j) {
                sum += exponential(shifted[j]);
            }
            per_second = ce_factor / sum;
            ce[row] = static_cast<double>(std::log(sum) - label_shifted);
            for (std::int64_t j = 0; j < k; ++j) {
                top_gradient[j] += exponential(shifted[j]) * per_second;
            }
        } else if (!tempered) {
            ce[row] = static_cast<double>(log_total - label_shifted);
        }
        W label_gradient = exponentials[label] * rest_exponential - ce_factor;
        if (second) {
            label_gradient += scratch.second[static_cast<std::size_t>(label)] * per_second;
            write(exponentials, rest_exponential, scratch.second.data(), per_second, z, vocabulary);
        } else {
            write(exponentials, rest_exponential, z, vocabulary);
        }
        z[label] = narrowed<T>(label_gradient);
        for (std::int64_t j = 0; j < k; ++j) {
            z[top[j]] = narrowed<T>(top[j] == label ? top_gradient[j] - ce_factor : top_gradient[j]);
        }
    }
};

}  // namespace

LossValues topk_loss(Tensor& logits, const LossTargets& targets, const LossFactors& factors) {
    const std::int64_t count = logits.size(0);
    const std::int64_t vocabulary = logits.size(1);
    const std::int64_t k = targets.ids.defined() ? targets.ids.size(1) : 0;
    const auto values = logits.options().dtype(torch::kDouble);
    LossValues out;
    Tensor kl = torch::zeros({count}, values);
    Tensor ce = torch::zeros({count}, values);
    with_element_type(logits.scalar_type(), [&]<typename T>() {
        using W = Wide<T>;
        const LossRow<T> work{mutable_elements<T>(logits),
                              elements<std::int64_t>(targets.labels),
                              elements<std::int64_t>(targets.ids),
                              elements<W>(targets.probabilities),
                              elements<W>(targets.tail_probability),
                              elements<W>(targets.negative_entropy),
                              mutable_elements<double>(kl),
                              mutable_elements<double>(ce),
                              vocabulary,
                              k,
                              static_cast<W>(factors.ce),
                              static_cast<W>(factors.kd),
                              static_cast<W>(factors.temperature)};
        in_parallel(count, grain_of(vocabulary), [&](std::int64_t begin, std::int64_t end) {
            typename LossRow<T>::Scratch scratch;
            scratch.exponentials.resize(static_cast<std::size_t>(vocabulary));
            scratch.second.resize(
                static_cast<std::size_t>(factors.temperature != 1 && factors.ce != 0 ? vocabulary : 0));
            scratch.top_shifted.resize(static_cast<std::size_t>(k));
            scratch.top_gradient.resize(static_cast<std::size_t>(k));
            run_widest<LossRow<T>>(&work, &scratch, begin, end);
        });
    });
    out.kl = kl;
    if (k == 0 || factors.temperature == 1 || factors.ce != 0) {
        out.ce = ce;
    }
    return out;
}

}  // namespace distilld::kernels
