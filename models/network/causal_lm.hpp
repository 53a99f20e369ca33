#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "models/families/model_family.hpp"
#include "models/network/compute_dtype.hpp"
#include "models/network/document_groups.hpp"
#include "models/network/dropout.hpp"
#include "models/network/kv_cache.hpp"
#include "models/network/linear.hpp"
#include "models/network/parameter.hpp"
#include "models/weights/export.hpp"
#include "pipeline/core/special_tokens.hpp"

namespace distilld::models {

struct AdapterSet;

/// Linear modules by name.
struct TernaryModules {
    std::vector<std::string> ternary;
    std::vector<std::string> others;
};

/// A network that predicts the next token, on one device or, layer by layer, on several. One thread at a time.
/// Deterministic on a CPU for a fixed number of threads. The only interface of networks for training, serving and
/// benchmarks.
class CausalLm {
  public:
    /// Called with the index of a group just before that group's first use in a forward pass.
    using BeforeGroup = std::function<void(std::size_t group)>;

    CausalLm();
    virtual ~CausalLm();
    CausalLm(const CausalLm&) = delete;
    CausalLm& operator=(const CausalLm&) = delete;

    /// `input_ids` [B, T] int64 on the device, ids in [0, vocabulary_size()) -> hidden states after the last norm [B,
    /// T, H] in the compute dtype. Rows padded on the right need no mask, because a position sees only earlier ones.
    ///
    /// With `documents`, `input_ids` is [1, N]: these documents one after the other. No position sees another
    /// document's, and each document's positions count from 0.
    virtual torch::Tensor forward(const torch::Tensor& input_ids, const BeforeGroup& before,
                                  const DocumentGroups& documents) = 0;
    torch::Tensor forward(const torch::Tensor& input_ids, const BeforeGroup& before) {
        return forward(input_ids, before, {});
    }
    torch::Tensor forward(const torch::Tensor& input_ids) { return forward(input_ids, {}, {}); }

    /// Reads on in sequences: `input_ids` [N] int64 on the device, the new tokens of one sequence after the other, then
    /// tokens that belong to none -> hidden states after the last norm [N, H], those of no sequence unspecified. The
    /// caches get the new positions; the same cache must not occur twice. A token's state has the bits that it has in
    /// any other call with the same split of its sequence into calls and the same kind of products: on a CPU, with
    /// few_rows and one token of each sequence, or with library and least_rows() tokens or more (decision 0014). For
    /// inference, without gradients.
    virtual torch::Tensor extend(const torch::Tensor& input_ids, const std::vector<Extension>& sequences,
                                 ProductKind kind) = 0;

    /// From now on, forward keeps only the input of each block (layer), and backward computes the block again: less
    /// memory, one more forward pass, the same bits.
    virtual void recompute_blocks(bool on) = 0;

    /// The parameter that turns hidden states into logits, [V, H]; with a tied head, the embedding's.
    [[nodiscard]] virtual Parameter& head() = 0;
    /// Its weight in the compute dtype, recorded by autograd: for callers that project in chunks and convert it once.
    [[nodiscard]] virtual torch::Tensor head_weight() const = 0;
    /// `hidden` [N, H] (or [B, T, H]) -> logits [N, V] in the compute dtype.
    [[nodiscard]] virtual torch::Tensor project(const torch::Tensor& hidden, ProductKind kind) const = 0;
    [[nodiscard]] torch::Tensor project(const torch::Tensor& hidden) const {
        return project(hidden, ProductKind::library);
    }

    /// In the order of forward, the head last; each parameter exactly once (a tied head belongs to the embedding).
    [[nodiscard]] virtual std::vector<ParameterGroup>& groups() = 0;
    [[nodiscard]] virtual const std::vector<ParameterGroup>& groups() const = 0;

    [[nodiscard]] virtual const ModelConfig& config() const = 0;
    [[nodiscard]] virtual ComputeDtype dtype() const = 0;
    /// The device of the input.
    [[nodiscard]] virtual torch::Device device() const = 0;
    /// The device of a group's parameters and of its part of forward; hidden states come from the last group's.
    [[nodiscard]] virtual torch::Device group_device(std::size_t group) const = 0;

    /// The modules that may be adapted: attention and feed-forward, in forward order; not the head.
    [[nodiscard]] virtual std::vector<LinearModule> linear_modules() = 0;

    /// The adapters that are trained instead of the weights (lora.hpp); nullptr: the weights are trained.
    [[nodiscard]] AdapterSet* adapters() const noexcept { return adapters_.get(); }
    void set_adapters(std::unique_ptr<AdapterSet> adapters);

    /// The seed of dropout.
    [[nodiscard]] const std::uint64_t& dropout_seed() const noexcept { return dropout_seed_; }
    void set_dropout_seed(std::uint64_t seed) noexcept { dropout_seed_ = seed; }

    /// For exports and checkpoints; set by make_ternary().
    void set_ternary_modules(TernaryModules modules) { ternary_ = std::move(modules); }

    [[nodiscard]] std::int64_t vocabulary_size() const { return config().decoder.vocab_size; }
    [[nodiscard]] std::int64_t max_positions() const { return config().decoder.max_position_embeddings; }

    /// The content of an export: masters (shared, on the device) with their original dtypes, and config files that keep
    /// unknown fields; with adapters, only the adapters. Not for a network read for inference.
    [[nodiscard]] ModelExport model_export() const { return model_export(std::nullopt); }
    /// Uses these ids instead of the config's.
    [[nodiscard]] ModelExport model_export(const std::optional<SpecialTokens>& special) const;
    /// The part of the config that decides the shapes and meaning of the weights; checkpoints compare it. With
    /// adapters: also their shape and the hash of their base.
    [[nodiscard]] std::string canonical_config() const;

  private:
    std::unique_ptr<AdapterSet> adapters_;
    std::uint64_t dropout_seed_ = 0;
    TernaryModules ternary_;
};

/// The prefix that names in the family's files may lack.
[[nodiscard]] NamePrefix names_in_files(const ModelFamily& family);

/// A network of this shape with random weights: normal(0, initializer_range), narrower if the family says so (GPT-2's
/// c_proj), biases 0, norms 1. They depend on `seed` alone.
std::unique_ptr<CausalLm> make_causal_lm(ModelConfig config, ComputeDtype dtype, const torch::Device& device,
                                         std::uint64_t seed);

/// How the weights of a folder are used.
enum class WeightUse {
    training,   ///< as trainable masters
    inference,  ///< in the compute dtype only; cannot be trained or exported
    mapped,     ///< as inference, on a CPU, mapped: read-only pages of the files, which the
                ///< processes of a machine share. All must have the compute dtype
};

/// A network of this shape with the weights of `folder`: model.safetensors, or the shards that
/// model.safetensors.index.json names. Every parameter must be there with its shape, in F32, F16 or BF16. Tensors that
/// do not belong are an error that names them, except those that the family ignores and a head next to a tied one.
/// Files may leave out the family's optional prefix of names. All of that is checked before memory is allocated. A
/// non-finite value is an error too. Errors name the file and the tensor.
Result<std::unique_ptr<CausalLm>> load_causal_lm(ModelConfig config, const std::filesystem::path& folder,
                                                 ComputeDtype dtype, const torch::Device& device,
                                                 WeightUse use = WeightUse::training);

/// As above, on several devices in order: each gets consecutive layers with about the same number of parameters. Not
/// for training.
Result<std::unique_ptr<CausalLm>> load_causal_lm(ModelConfig config, const std::filesystem::path& folder,
                                                 ComputeDtype dtype, const std::vector<torch::Device>& devices,
                                                 WeightUse use);

/// load_causal_lm with the folder's own config.json.
Result<std::unique_ptr<CausalLm>> open_causal_lm(const std::filesystem::path& folder, ComputeDtype dtype,
                                                 const torch::Device& device,
                                                 std::span<const ModelFamily> families = model_families(),
                                                 WeightUse use = WeightUse::training);
Result<std::unique_ptr<CausalLm>> open_causal_lm(const std::filesystem::path& folder, ComputeDtype dtype,
                                                 const std::vector<torch::Device>& devices,
                                                 std::span<const ModelFamily> families, WeightUse use);

}  // namespace distilld::models
