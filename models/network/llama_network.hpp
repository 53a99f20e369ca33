#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "models/families/llama_config.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

/// What the arithmetic of forward runs in. Masters are fp32 either way.
enum class ComputeDtype { fp32, bf16 };

[[nodiscard]] const char* to_string(ComputeDtype dtype) noexcept;
[[nodiscard]] torch::ScalarType to_scalar_type(ComputeDtype dtype) noexcept;

/// auto_select: bf16 on a CUDA device or a CPU with AMX bf16 (cpuinfo flags amx_tile and amx_bf16), else fp32.
ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device);

/// Parameters that one part of the forward pass uses, in a fixed order.
struct ParameterGroup {
    std::string name;  ///< "embedding", "layers.0" …, "head"
    /// Hugging Face names ("model.layers.0.self_attn.q_proj.weight"); fp32 leaf tensors on the device, requires_grad.
    std::vector<std::pair<std::string, torch::Tensor>> parameters;
};

/// Llama (RMSNorm, rotary positions, grouped-query attention, SwiGLU; tied or untied head), the same function as
/// transformers' LlamaForCausalLM. One thread at a time. Deterministic on a CPU for a fixed number of threads.
class LlamaNetwork {
  public:
    using BeforeGroup = std::function<void(std::size_t group)>;

    /// Parameters are allocated, not initialised: call initialize_random() or load().
    LlamaNetwork(LlamaConfig config, ComputeDtype dtype, torch::Device device);

    /// A network of `folder`'s config.json with its weights. The files are checked against the configuration before
    /// memory for the parameters is allocated.
    static Result<LlamaNetwork> open(const std::filesystem::path& folder, ComputeDtype dtype, torch::Device device);

    LlamaNetwork(LlamaNetwork&&) noexcept = default;
    LlamaNetwork& operator=(LlamaNetwork&&) noexcept = default;
    LlamaNetwork(const LlamaNetwork&) = delete;
    LlamaNetwork& operator=(const LlamaNetwork&) = delete;

    /// Weights from normal(0, initializer_range), biases 0, norms 1. Drawn on the CPU from a generator of its own, so
    /// the values depend on the seed and the config only, not on the device or on global state. save() writes fp32.
    void initialize_random(std::uint64_t seed);

    /// Reads model.safetensors, or the shards that model.safetensors.index.json names. Every parameter must be there
    /// with its shape; tensors that do not belong are an error naming them (but rotary inv_freq buffers, and
    /// lm_head.weight when the head is tied). Remembers each tensor's dtype and the folder's config.json and
    /// generation_config.json for save(). The configuration stays the constructor's. After an error the weights are
    /// unspecified.
    Result<void> load(const std::filesystem::path& folder);

    /// Texts that save() starts from, for a network that was not loaded; either may be empty.
    void set_source_config(std::string config_json, std::string generation_config_json = {});

    /// Writes config.json, generation_config.json and model.safetensors (metadata format=pt, tied weights once) into
    /// `folder`, created if absent; each file atomically.
    Result<void> save(const std::filesystem::path& folder) const;

    /// The above two config texts as save() would write them.
    [[nodiscard]] std::string config_json() const;
    [[nodiscard]] std::string generation_config_json() const;

    /// As saved: fp32 masters converted to the dtype they were read with. Detached; shares memory where no conversion
    /// was needed.
    [[nodiscard]] std::vector<std::pair<std::string, torch::Tensor>> named_parameters() const;

    /// Dtype that save() gives the parameter `name` (torch::kFloat unless load() read another).
    [[nodiscard]] torch::ScalarType saved_dtype(const std::string& name) const;

    /// `input_ids` [B, T] int64 on the device, ids in [0, vocab_size) -> hidden states after the last norm [B, T, H] in
    /// the compute dtype. `before(g)` is called just before the first use of group g: 0 = embedding, 1..L = layers,
    /// L+1 = final norm (and untied head). Rows padded on the right need no mask: attention is causal.
    torch::Tensor forward(const torch::Tensor& input_ids, const BeforeGroup& before = {});

    /// `hidden` [N, H] (or [B, T, H]) -> logits [N, V] in the compute dtype.
    [[nodiscard]] torch::Tensor project(const torch::Tensor& hidden) const;

    /// The head's weight [V, H] in the compute dtype, recorded by autograd: for callers that project in chunks and
    /// should not convert it once a chunk.
    [[nodiscard]] torch::Tensor head_weight() const;

    /// For inference only: converts the parameters to the compute dtype once, so that forward does not convert them
    /// each time, and drops requires_grad. Not to be trained or saved afterwards.
    void freeze_for_inference();

    /// In the order of forward; each parameter exactly once (a tied head belongs to group 0).
    [[nodiscard]] std::vector<ParameterGroup>& groups() noexcept { return groups_; }
    [[nodiscard]] const std::vector<ParameterGroup>& groups() const noexcept { return groups_; }

    [[nodiscard]] const LlamaConfig& config() const noexcept { return config_; }
    [[nodiscard]] std::uint64_t parameter_count() const;
    [[nodiscard]] ComputeDtype dtype() const noexcept { return dtype_; }
    [[nodiscard]] torch::Device device() const noexcept { return device_; }

  private:
    /// Handles on the tensors of one layer, shared with groups_; biases are undefined where the config has none.
    struct Linear {
        std::size_t weight = 0;
        std::ptrdiff_t bias = -1;
    };
    struct Layer {
        std::size_t input_norm = 0;
        Linear q, k, v, o;
        std::size_t post_norm = 0;
        Linear gate, up, down;
    };
    struct Rotary {
        torch::Tensor cos;  ///< [T, head_dim / 2], compute dtype
        torch::Tensor sin;
    };

    [[nodiscard]] torch::Tensor weight_of(const ParameterGroup& group, std::size_t index) const;
    [[nodiscard]] torch::Tensor linear(const ParameterGroup& group, const Linear& linear,
                                       const torch::Tensor& input) const;
    [[nodiscard]] torch::Tensor norm(const ParameterGroup& group, std::size_t index, const torch::Tensor& input) const;
    [[nodiscard]] torch::Tensor attention(const ParameterGroup& group, const torch::Tensor& input,
                                          const Rotary& rotary) const;
    [[nodiscard]] torch::Tensor mlp(const ParameterGroup& group, const torch::Tensor& input) const;
    Rotary rotary_for(std::int64_t columns);

    LlamaConfig config_;
    ComputeDtype dtype_;
    torch::Device device_;
    std::vector<ParameterGroup> groups_;
    Layer layout_;  ///< positions within a layer's group, the same for every layer
    Rotary rotary_;
    std::unordered_map<std::string, torch::ScalarType> source_dtypes_;
    std::string source_config_json_;
    std::string source_generation_json_;
};

/// Byte-for-byte copies of the tokenizer files that `from_folder` has (tokenizer.json, tokenizer_config.json,
/// special_tokens_map.json, vocab.json, merges.txt, tokenizer.model, chat_template.jinja, added_tokens.json), each
/// written atomically. `to_folder` must exist. A folder without any is fine.
Result<void> copy_tokenizer_files(const std::filesystem::path& from_folder, const std::filesystem::path& to_folder);

}  // namespace distilld::models
