#include "models/network/decoder.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/network/attention.hpp"
#include "models/network/checkpointed.hpp"
#include "models/network/dropout.hpp"
#include "models/network/embedding.hpp"
#include "models/network/layer_place.hpp"
#include "models/network/mlp.hpp"
#include "models/network/norm.hpp"
#include "models/network/rotary.hpp"

namespace distilld::models {
namespace {

/// h + attention(norm(h)), then h + mlp(norm(h)).
class DecoderLayer {
  public:
    explicit DecoderLayer(const LayerPlace& place)
        : input_norm_(place.group, place.name(place.names.input_norm), place.config),
          attention_(place),
          middle_norm_(place.group, place.name(place.names.post_attention_norm), place.config),
          mlp_(place),
          dropout_(place.dropout_seed, place.config.dropout.residual, place.name("residual")) {}

    [[nodiscard]] torch::Tensor forward(const torch::Tensor& hidden, const RotaryPositions::Angles& angles,
                                        const DocumentGroups& documents) const {
        const auto [input, normed] = input_norm_.forward(hidden);
        const auto [middle, normed_middle] =
            middle_norm_.forward(input, dropout_.forward(attention_.forward(normed, angles, documents), 0));
        return middle + dropout_.forward(mlp_.forward(normed_middle), 1);
    }

    [[nodiscard]] torch::Tensor extend(const torch::Tensor& hidden, const RotaryPositions::Angles& angles,
                                       const std::vector<Extension>& sequences, std::size_t layer,
                                       ProductKind kind) const {
        const auto [input, normed] = input_norm_.forward(hidden);
        const auto [middle, normed_middle] =
            middle_norm_.forward(input, attention_.extend(normed, angles, sequences, layer, kind));
        return middle + mlp_.forward(normed_middle, kind);
    }

    [[nodiscard]] std::vector<Linear*> linears() {
        std::vector<Linear*> all = attention_.linears();
        std::ranges::copy(mlp_.linears(), std::back_inserter(all));
        return all;
    }

  private:
    // In the order of their parameters: initial values are drawn in it.
    Norm input_norm_;
    Attention attention_;
    Norm middle_norm_;
    Mlp mlp_;
    Dropout dropout_;
};

/// Chooses a device for each group: each device gets an equal share of all numbers, and the group's middle decides.
std::vector<torch::Device> spread(const std::vector<ParameterGroup>& groups,
                                  const std::vector<torch::Device>& devices) {
    const auto all = static_cast<double>(parameter_count(groups));
    std::vector<torch::Device> chosen;
    double before = 0;
    for (const ParameterGroup& group : groups) {
        const auto own = static_cast<double>(parameter_count(std::span(&group, 1)));
        const double share = (before + own / 2) / all * static_cast<double>(devices.size());
        chosen.push_back(devices[std::min(static_cast<std::size_t>(share), devices.size() - 1)]);
        before += own;
    }
    chosen.front() = devices.front();
    chosen.back() = devices.back();
    return chosen;
}

class Decoder final : public CausalLm {
  public:
    Decoder(ModelConfig config, ComputeDtype dtype, const std::vector<torch::Device>& devices)
        : config_(std::move(config)),
          dtype_(dtype),
          groups_(static_cast<std::size_t>(config_.decoder.num_hidden_layers) + 2),
          embedding_(declare_table(groups_.front(), config_.family->names.embedding, config_.decoder.vocab_size)),
          positions_(has_learned_positions() ? &declare_table(groups_.front(), config_.family->names.positions,
                                                              config_.decoder.max_position_embeddings)
                                             : nullptr),
          embedding_dropout_(dropout_seed(), config_.decoder.dropout.embedding, "embedding"),
          layers_(declare_layers()),
          final_norm_(groups_.back(), config_.family->names.final_norm, config_.decoder),
          head_(config_.decoder.tie_word_embeddings
                    ? embedding_
                    : declare_table(groups_.back(), config_.family->names.head, config_.decoder.vocab_size)),
          devices_(spread(groups_, devices)) {
        if (!has_learned_positions()) {
            for (const torch::Device& device : devices) {
                rotary_.emplace(device.str(), RotaryPositions(config_.decoder, to_scalar_type(dtype), device));
            }
        }
        groups_.front().name = "embedding";
        groups_.back().name = "head";
    }

    using CausalLm::forward;
    torch::Tensor forward(const torch::Tensor& input_ids, const BeforeGroup& before,
                          const DocumentGroups& documents) override {
        TORCH_CHECK(input_ids.dim() == 2 && input_ids.scalar_type() == torch::kInt64,
                    "input_ids must be [B, T] int64, got ", input_ids.sizes(), " ", input_ids.scalar_type());
        TORCH_CHECK(documents.empty() || (input_ids.size(0) == 1 && input_ids.size(1) == positions_of(documents)),
                    "input_ids must be [1, ", positions_of(documents), "], got ", input_ids.sizes());
        const auto announce = [&](std::size_t group) {
            if (before) {
                before(group);
            }
        };
        announce(0);
        const auto options = torch::TensorOptions().dtype(torch::kInt64).device(input_ids.device());
        auto hidden = embedded(input_ids, documents.empty() ? torch::arange(input_ids.size(1), options)
                                                            : numbers_in(documents, input_ids.device()));
        RotaryPositions::Angles angles;
        for (std::size_t index = 0; index < layers_.size(); ++index) {
            announce(index + 1);
            if (index == 0 || devices_[index + 1] != devices_[index]) {
                hidden = hidden.to(devices_[index + 1]);
                angles = angles_on(devices_[index + 1], input_ids.size(1), documents);
            }
            const auto run = [layer = &layers_[index], angles, documents](const torch::Tensor& input) {
                return layer->forward(input, angles, documents);
            };
            hidden = recomputes_ && torch::GradMode::is_enabled() ? checkpointed(run, hidden) : run(hidden);
        }
        announce(groups_.size() - 1);
        return final_norm_.forward(hidden.to(devices_.back())).normed;
    }

    torch::Tensor extend(const torch::Tensor& input_ids, const std::vector<Extension>& sequences,
                         ProductKind kind) override {
        const torch::NoGradGuard no_grad;
        const auto rows = input_ids.size(0);
        std::int64_t columns = 1;
        std::vector<std::int64_t> numbers;
        for (const auto& [cache, count] : sequences) {
            cache->layers.resize(layers_.size());
            for (std::int64_t i = 0; i < count; ++i) {
                numbers.push_back(cache->length + i);
            }
            columns = std::max(columns, cache->length + count);
        }
        TORCH_CHECK(
            columns <= config_.decoder.max_position_embeddings && numbers.size() <= static_cast<std::size_t>(rows),
            "sequences of ", columns, " positions, ", numbers.size(), " of ", rows, " tokens");
        numbers.resize(static_cast<std::size_t>(rows), 0);
        const torch::Tensor positions = torch::tensor(numbers, torch::kInt64);
        auto hidden = embedded(input_ids.unsqueeze(0), positions.to(devices_.front()));
        RotaryPositions::Angles angles;
        for (std::size_t index = 0; index < layers_.size(); ++index) {
            const torch::Device& device = devices_[index + 1];
            if (index == 0 || device != devices_[index]) {
                hidden = hidden.to(device);
                if (!has_learned_positions()) {
                    angles = rotary_.at(device.str()).angles(positions.to(device), columns);
                }
            }
            hidden = layers_[index].extend(hidden, angles, sequences, index, kind);
        }
        for (const auto& [cache, count] : sequences) {
            cache->length += count;
        }
        return final_norm_.forward(hidden.to(devices_.back())).normed.squeeze(0);
    }

    void recompute_blocks(bool on) override { recomputes_ = on; }
    [[nodiscard]] Parameter& head() override { return head_; }
    [[nodiscard]] torch::Tensor head_weight() const override {
        const auto type = to_scalar_type(dtype_);
        return torch::GradMode::is_enabled() ? weight_of(head_, type) : compute_weight(head_, type);
    }
    [[nodiscard]] torch::Tensor project(const torch::Tensor& hidden, ProductKind kind) const override {
        const torch::Tensor weight = head_weight();  // a tied weight lies on the embedding's device
        return product(hidden.to(weight.device()), weight, {}, kind);
    }
    [[nodiscard]] std::vector<ParameterGroup>& groups() override { return groups_; }
    [[nodiscard]] const std::vector<ParameterGroup>& groups() const override { return groups_; }
    [[nodiscard]] std::vector<LinearModule> linear_modules() override {
        std::vector<LinearModule> modules;
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            for (Linear* linear : layers_[layer].linears()) {
                modules.push_back({layer + 1, linear});
            }
        }
        return modules;
    }
    [[nodiscard]] const ModelConfig& config() const override { return config_; }
    [[nodiscard]] ComputeDtype dtype() const override { return dtype_; }
    [[nodiscard]] torch::Device device() const override { return devices_.front(); }
    [[nodiscard]] torch::Device group_device(std::size_t group) const override { return devices_.at(group); }

  private:
    /// A matrix with one row per token or position.
    [[nodiscard]] Parameter& declare_table(ParameterGroup& group, const char* name, std::int64_t rows) const {
        return declare_parameter(group, std::string(name) + ".weight", {rows, config_.decoder.hidden_size},
                                 InitialValues::normal);
    }

    [[nodiscard]] bool has_learned_positions() const { return config_.decoder.positions == PositionKind::learned; }

    /// [B, T, H]; `numbers` [T]: the positions.
    [[nodiscard]] torch::Tensor embedded(const torch::Tensor& input_ids, const torch::Tensor& numbers) const {
        const auto type = to_scalar_type(dtype_);
        // Converting after the lookup gives the same bits as converting before, and converts fewer numbers.
        auto hidden = look_up(embedding_, input_ids).to(type);
        if (positions_ != nullptr) {
            hidden = hidden + look_up(*positions_, numbers).to(type);
        }
        return embedding_dropout_.forward(hidden);
    }

    /// Undefined if positions are not rotary.
    [[nodiscard]] RotaryPositions::Angles angles_on(const torch::Device& device, std::int64_t columns,
                                                    const DocumentGroups& documents) {
        if (has_learned_positions()) {
            return {};
        }
        RotaryPositions& rotary = rotary_.at(device.str());
        return documents.empty() ? rotary.angles(columns) : rotary.angles(documents);
    }

    [[nodiscard]] std::vector<DecoderLayer> declare_layers() {
        std::vector<DecoderLayer> layers;
        for (std::int64_t layer = 0; layer < config_.decoder.num_hidden_layers; ++layer) {
            ParameterGroup& group = groups_[layers.size() + 1];
            group.name = "layers." + std::to_string(layer);
            const DecoderNames& names = config_.family->names;
            layers.emplace_back(LayerPlace{group, config_.decoder, names, dropout_seed(), layer,
                                           std::string(names.layers) + "." + std::to_string(layer) + "."});
        }
        return layers;
    }

    ModelConfig config_;
    ComputeDtype dtype_;
    std::vector<ParameterGroup> groups_;  // keeps its size: later members refer into it
    Parameter& embedding_;
    Parameter* positions_;  ///< learned positions; nullptr: none
    Dropout embedding_dropout_;
    std::vector<DecoderLayer> layers_;
    Norm final_norm_;
    Parameter& head_;
    std::vector<torch::Device> devices_;  ///< one per group
    std::map<std::string, RotaryPositions> rotary_;
    bool recomputes_ = false;
};

}  // namespace

std::unique_ptr<CausalLm> make_decoder(ModelConfig config, ComputeDtype dtype,
                                       const std::vector<torch::Device>& devices) {
    return std::make_unique<Decoder>(std::move(config), dtype, devices);
}

}  // namespace distilld::models
