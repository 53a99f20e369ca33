#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/optimizers/block_quantizer.hpp"
#include "models/optimizers/gradient_norm.hpp"
#include "models/optimizers/update_rule.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kMinBlocksOfPart = 1 << 12;  ///< so that a thread has at least a million numbers

/// Factors of one update, the same for every number.
struct Factors {
    float clip = 1;
    float beta1 = 0;
    float beta2 = 0;
    float keep = 1;   ///< factor of a weight that decays
    float rate = 0;   ///< lr / (1 − β1^t)
    float root2 = 1;  ///< √(1 − β2^t)
    float epsilon = 0;
    bool moves = true;
};

/// The tensors of a slot by their role.
struct QuantizedMoments {
    Tensor codes1, absmax1, codes2, absmax2;
};

QuantizedMoments moments_of(const OptimizerSlot& slot) {
    return {slot.state[0].tensor, slot.state[1].tensor, slot.state[2].tensor, slot.state[3].tensor};
}

bool is_quantized(const OptimizerSlot& slot) {
    return slot.state.size() == 4;
}

class AdamW8bit final : public UpdateRule {
  public:
    explicit AdamW8bit(const OptimizerOptions& options) : options_(options), whole_(make_adamw(options)) {}

    [[nodiscard]] NamedTensors make_state(const Parameter& parameter, const ParameterGroup& group) const override {
        const Tensor& master = parameter.master;
        if (master.numel() < kMinQuantized || group.name == "embedding" || master.scalar_type() != torch::kFloat) {
            return whole_->make_state(parameter, group);
        }
        const auto blocks = (master.numel() + kQuantizedBlock - 1) / kQuantizedBlock;
        const auto codes = torch::TensorOptions().dtype(torch::kUInt8).device(master.device());
        const auto scales = torch::TensorOptions().dtype(torch::kFloat).device(master.device());
        // With a scale of 0, every code means 0.
        return {{"exp_avg", torch::zeros(master.sizes(), codes)},
                {"exp_avg_absmax", torch::zeros({blocks}, scales)},
                {"exp_avg_sq", torch::zeros(master.sizes(), codes)},
                {"exp_avg_sq_absmax", torch::zeros({blocks}, scales)}};
    }

    void update(std::span<OptimizerSlot* const> slots, const UpdateNumbers& numbers) const override {
        std::vector<OptimizerSlot*> whole;
        for (OptimizerSlot* slot : slots) {
            if (!is_quantized(*slot)) {
                whole.push_back(slot);
            } else if (slot->parameter.device().is_cpu()) {
                update_on_cpu(*slot, factors(numbers, slot->decays));
            } else {
                update_on_device(*slot, factors(numbers, slot->decays));
            }
        }
        whole_->update(whole, numbers);
    }

    [[nodiscard]] Factors factors(const UpdateNumbers& numbers, bool decays) const {
        const auto step = static_cast<double>(numbers.step);
        Factors made;
        made.clip = static_cast<float>(numbers.clip_coefficient);
        made.beta1 = static_cast<float>(options_.beta1);
        made.beta2 = static_cast<float>(options_.beta2);
        made.keep = static_cast<float>(1.0 - (decays ? numbers.learning_rate * options_.weight_decay : 0.0));
        made.rate = static_cast<float>(numbers.learning_rate / (1.0 - std::pow(options_.beta1, step)));
        made.root2 = static_cast<float>(std::sqrt(1.0 - std::pow(options_.beta2, step)));
        made.epsilon = static_cast<float>(options_.epsilon);
        made.moves = numbers.learning_rate != 0;
        return made;
    }

    void update_on_cpu(OptimizerSlot& slot, const Factors& factors) const {
        const Tensor gradient = slot.parameter.grad().contiguous();
        const QuantizedMoments moments = moments_of(slot);
        auto* weights = slot.parameter.mutable_data_ptr<float>();
        const auto* slopes = static_cast<const float*>(gradient.const_data_ptr());
        auto* codes1 = moments.codes1.mutable_data_ptr<std::uint8_t>();
        auto* codes2 = moments.codes2.mutable_data_ptr<std::uint8_t>();
        auto* scales1 = moments.absmax1.mutable_data_ptr<float>();
        auto* scales2 = moments.absmax2.mutable_data_ptr<float>();
        const std::int64_t count = gradient.numel();
        run_in_parts(moments.absmax1.numel(), kMinBlocksOfPart, at::get_num_threads(),
                     [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t block = begin; block < end; ++block) {
                             const std::int64_t at = block * kQuantizedBlock;
                             const auto size = static_cast<std::size_t>(std::min(kQuantizedBlock, count - at));
                             const Block one{std::span(weights + at, size),
                                             std::span(slopes + at, size),
                                             std::span(codes1 + at, size),
                                             std::span(codes2 + at, size),
                                             scales1[block],
                                             scales2[block]};
                             update_block(one, factors);
                         }
                     });
    }

    /// The same in tensor operations, for devices with memory that the host cannot read.
    void update_on_device(OptimizerSlot& slot, const Factors& factors) const {
        const QuantizedMoments moments = moments_of(slot);
        const Tensor gradient = slot.parameter.grad() * factors.clip;
        const DeviceMaps& maps = maps_on(gradient.device());
        Tensor first = dequantized(moments.codes1, moments.absmax1, maps.values1);
        Tensor second = dequantized(moments.codes2, moments.absmax2, maps.values2);
        first.lerp_(gradient, 1.0 - factors.beta1);
        second.mul_(factors.beta2).addcmul_(gradient, gradient, 1.0 - factors.beta2);
        if (factors.moves) {
            slot.parameter.mul_(factors.keep);
            slot.parameter.addcdiv_(first, second.sqrt().div_(factors.root2).add_(factors.epsilon), -factors.rate);
        }
        quantize(first, maps.middles1, maps.values1, moments.codes1, moments.absmax1);
        quantize(second, maps.middles2, maps.values2, moments.codes2, moments.absmax2);
    }

  private:
    struct Block {
        std::span<float> weights;
        std::span<const float> gradient;
        std::span<std::uint8_t> codes1;
        std::span<std::uint8_t> codes2;
        float& scale1;
        float& scale2;
    };

    /// The tables of both maps.
    struct DeviceMaps {
        Tensor values1, middles1, values2, middles2;
    };

    /// Copied to the device only once, because the host waits for each copy.
    const DeviceMaps& maps_on(const torch::Device& device) const {
        const auto there = maps_.find(device.str());
        if (there != maps_.end()) {
            return there->second;
        }
        const auto copied = [&](std::span<const float> numbers) {
            return torch::tensor(at::ArrayRef<float>(numbers.data(), numbers.size())).to(device);
        };
        return maps_
            .emplace(device.str(), DeviceMaps{copied(signed_.values()), copied(signed_.middles()),
                                              copied(unsigned_.values()), copied(unsigned_.middles())})
            .first->second;
    }

    void update_block(const Block& block, const Factors& factors) const {
        std::array<float, kQuantizedBlock> first;
        std::array<float, kQuantizedBlock> second;
        float max1 = 0;
        float max2 = 0;
        for (std::size_t i = 0; i < block.gradient.size(); ++i) {
            const float slope = block.gradient[i] * factors.clip;
            const float before1 = signed_.value(block.codes1[i]) * block.scale1;
            const float before2 = unsigned_.value(block.codes2[i]) * block.scale2;
            first[i] = factors.beta1 * before1 + (1.0F - factors.beta1) * slope;
            second[i] = factors.beta2 * before2 + (1.0F - factors.beta2) * slope * slope;
            max1 = std::max(max1, std::abs(first[i]));
            max2 = std::max(max2, second[i]);
        }
        if (factors.moves) {
            for (std::size_t i = 0; i < block.weights.size(); ++i) {
                const float root = std::sqrt(second[i]) / factors.root2 + factors.epsilon;
                block.weights[i] = block.weights[i] * factors.keep - factors.rate * (first[i] / root);
            }
        }
        for (std::size_t i = 0; i < block.codes1.size(); ++i) {
            block.codes1[i] = signed_.code(max1 > 0 ? first[i] / max1 : 0.0F);
            block.codes2[i] = unsigned_.code(max2 > 0 ? second[i] / max2 : 0.0F);
        }
        block.scale1 = max1;
        block.scale2 = max2;
    }

    /// [blocks, kQuantizedBlock], padded with 0.
    static Tensor in_blocks(const Tensor& tensor) {
        const std::int64_t blocks = (tensor.numel() + kQuantizedBlock - 1) / kQuantizedBlock;
        return at::constant_pad_nd(tensor.flatten(), {0, blocks * kQuantizedBlock - tensor.numel()})
            .view({blocks, kQuantizedBlock});
    }

    static Tensor dequantized(const Tensor& codes, const Tensor& absmax, const Tensor& values) {
        const Tensor numbers = values.index_select(0, codes.flatten().to(torch::kLong));
        return in_blocks(numbers).mul_(absmax.unsqueeze(1)).flatten().slice(0, 0, codes.numel()).view(codes.sizes());
    }

    static void quantize(const Tensor& numbers, const Tensor& middles, const Tensor& values, Tensor codes,
                         Tensor absmax) {
        const Tensor blocks = in_blocks(numbers);
        absmax.copy_(blocks.abs().amax(1));
        const Tensor scaled = blocks / absmax.clamp_min(std::numeric_limits<float>::min()).unsqueeze(1);
        Tensor found = at::bucketize(scaled, middles);
        const Tensor lost_sign =
            torch::logical_and(scaled < 0, values.index_select(0, found.flatten()).view_as(found) == 0);
        found.sub_(lost_sign.to(found.scalar_type()));
        codes.copy_(found.flatten().slice(0, 0, numbers.numel()).view(codes.sizes()));
    }

    OptimizerOptions options_;
    std::unique_ptr<UpdateRule> whole_;
    DynamicMap signed_{true};
    DynamicMap unsigned_{false};
    mutable std::map<std::string, DeviceMaps> maps_;  // by device; entries never change
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw_8bit(const OptimizerOptions& options) {
    return std::make_unique<AdamW8bit>(options);
}

}  // namespace distilld::models
