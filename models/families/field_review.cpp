#include "models/families/field_review.hpp"

#include <algorithm>
#include <boost/json.hpp>

namespace distilld::models {

namespace json = boost::json;

namespace {

/// Fields that every family reads or refuses, mostly in decoder_fields.cpp and rope_fields.cpp.
constexpr std::string_view kRead[] = {
    "architectures",       "bos_token_id",
    "eos_token_id",        "head_dim",
    "hidden_size",         "initializer_range",
    "intermediate_size",   "max_position_embeddings",
    "model_type",          "num_attention_heads",
    "num_hidden_layers",   "num_key_value_heads",
    "pad_token_id",        "partial_rotary_factor",
    "quantization_config", "rope_parameters",
    "rope_scaling",        "rope_theta",
    "tie_word_embeddings", "vocab_size",
};

/// Fields that do not affect a decoder's computation: bookkeeping, generation, training elsewhere, other heads.
constexpr std::string_view kHarmless[] = {
    "add_bos_token",
    "add_eos_token",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "base_model_pp_plan",
    "base_model_tp_plan",
    "begin_suppress_tokens",
    "chat_template",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "is_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",  // only relevant with a sliding window, which must be off
    "min_length",
    "name",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "prefix",
    "pretraining_tp",  // the same products, in slices
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "summary_activation",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_return_dict",
};

/// The value at which a field has no effect. null never has an effect.
enum class Neutral {
    off,             ///< false, 0, "" or empty
    one,             ///< 1
    on,              ///< true
    list_of_ones,    ///< [] or [1, 1, …]
    full_attention,  ///< [] or ["full_attention", …]
    silu,            ///< "silu"
    rms_norm,        ///< "rms_norm", "rmsnorm"
    rotary,          ///< "rope", "rotary"
};

struct NeutralField {
    std::string_view name;
    Neutral neutral;
};

/// Fields that change a decoder's computation, with models that use them. A field that the family itself reads is not
/// checked.
constexpr NeutralField kNeutral[] = {
    {"activation_function", Neutral::silu},
    {"alibi", Neutral::off},  // Bloom, Falcon
    {"attention_bias", Neutral::off},
    {"attention_chunk_size", Neutral::off},  // Llama 4
    {"attention_dropout", Neutral::off},     // for training
    {"attention_multiplier", Neutral::off},  // Granite
    {"attention_out_bias", Neutral::off},
    {"attn_logit_softcapping", Neutral::off},   // Gemma 2
    {"attn_temperature_tuning", Neutral::off},  // Llama 4
    {"bias", Neutral::off},
    {"clip_qkv", Neutral::off},  // OLMo
    {"cross_attention_hidden_size", Neutral::off},
    {"add_cross_attention", Neutral::off},
    {"dim_model_base", Neutral::off},  // MiniCPM
    {"embd_pdrop", Neutral::off},
    {"embedding_multiplier", Neutral::one},     // Granite
    {"final_logit_softcapping", Neutral::off},  // Gemma 2
    {"first_k_dense_replace", Neutral::off},
    {"hidden_activation", Neutral::silu},
    {"hidden_dropout", Neutral::off},
    {"hidden_dropout_prob", Neutral::off},
    {"interleave_moe_layer_step", Neutral::off},
    {"is_causal", Neutral::on},
    {"is_encoder_decoder", Neutral::off},
    {"kv_lora_rank", Neutral::off},            // DeepSeek
    {"layer_types", Neutral::full_attention},  // Gemma 3, Qwen 3, SmolLM 3
    {"logit_scale", Neutral::one},             // Cohere
    {"logits_scaling", Neutral::one},          // Granite
    {"lm_head_bias", Neutral::off},
    {"mlp_bias", Neutral::off},
    {"moe_intermediate_size", Neutral::off},
    {"n_routed_experts", Neutral::off},
    {"n_shared_experts", Neutral::off},
    {"no_rope_layer_interval", Neutral::off},   // SmolLM 3
    {"no_rope_layers", Neutral::list_of_ones},  // SmolLM 3, Llama 4
    {"norm_type", Neutral::rms_norm},
    {"num_experts", Neutral::off},
    {"num_experts_per_tok", Neutral::off},
    {"num_kv_shared_layers", Neutral::off},  // Gemma 3n
    {"num_local_experts", Neutral::off},     // Mixtral
    {"o_bias", Neutral::off},
    {"parallel_attn", Neutral::off},  // Falcon
    {"position_embedding_type", Neutral::rotary},
    {"q_lora_rank", Neutral::off},
    {"qk_layernorm", Neutral::off},  // Phi, Persimmon
    {"qk_norm", Neutral::off},
    {"qk_rope_head_dim", Neutral::off},
    {"qkv_bias", Neutral::off},               // InternLM
    {"query_pre_attn_scalar", Neutral::off},  // Gemma 2
    {"resid_pdrop", Neutral::off},
    {"residual_multiplier", Neutral::one},  // Granite
    {"rope_interleaved", Neutral::off},
    {"rope_local_base_freq", Neutral::off},    // Gemma 3
    {"rotary_pct", Neutral::one},              // GPT-NeoX
    {"scale_depth", Neutral::off},             // MiniCPM
    {"scale_emb", Neutral::one},               // MiniCPM
    {"sliding_window", Neutral::off},          // Mistral
    {"sliding_window_pattern", Neutral::off},  // Gemma 3, Cohere 2
    {"text_config", Neutral::off},
    {"use_alibi", Neutral::off},
    {"use_bias", Neutral::off},
    {"use_bidirectional_attention", Neutral::off},
    {"use_mrope", Neutral::off},
    {"use_parallel_residual", Neutral::off},  // GPT-NeoX
    {"use_qk_norm", Neutral::off},            // Llama 4, Cohere
    {"use_qkv_bias", Neutral::off},           // StableLM
    {"use_sliding_window", Neutral::off},
    {"v_head_dim", Neutral::off},
    {"vision_config", Neutral::off},
};

bool is_one_of(const json::value& value, std::initializer_list<std::string_view> texts) {
    return value.is_string() && std::ranges::find(texts, std::string_view(value.get_string())) != texts.end();
}

bool is_number(const json::value& value, double number) {
    return value.is_number() && value.to_number<double>() == number;
}

bool is_empty(const json::value& value) {
    return (value.is_bool() && !value.get_bool()) || is_number(value, 0) || is_one_of(value, {""}) ||
           (value.is_array() && value.get_array().empty()) || (value.is_object() && value.get_object().empty());
}

template <class Predicate>
bool is_list_of(const json::value& value, Predicate is_item) {
    return value.is_array() && std::ranges::all_of(value.get_array(), is_item);
}

bool is_neutral(const json::value& value, Neutral neutral) {
    switch (neutral) {
        case Neutral::off:
            return is_empty(value);
        case Neutral::one:
            return is_number(value, 1);
        case Neutral::on:
            return value.is_bool() && value.get_bool();
        case Neutral::list_of_ones:
            return is_list_of(value, [](const json::value& item) { return is_number(item, 1); });
        case Neutral::full_attention:
            return is_list_of(value, [](const json::value& item) { return is_one_of(item, {"full_attention"}); });
        case Neutral::silu:
            return is_one_of(value, {"silu", "swish"});
        case Neutral::rms_norm:
            return is_one_of(value, {"rms_norm", "rmsnorm", "RMSNorm"});
        case Neutral::rotary:
            return is_one_of(value, {"rope", "rotary"});
    }
    return false;
}

/// Whether another field makes this field's value irrelevant.
bool is_switched_off(const JsonMembers& config, std::string_view name) {
    if (name == "sliding_window" || name == "sliding_window_pattern") {
        const json::value* used = config.find("use_sliding_window");
        return used != nullptr && is_empty(*used);
    }
    // The list expands the interval; if both are given, the list decides.
    return name == "no_rope_layer_interval" && config.find("no_rope_layers") != nullptr;
}

bool contains(std::span<const std::string_view> names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
}

}  // namespace

void review_fields(JsonMembers& config, std::span<const std::string_view> family_fields,
                   std::vector<std::string>& warnings) {
    std::string unknown;
    for (const auto& member : config.members()) {
        const std::string_view name = member.key();
        const json::value& value = member.value();
        if (value.is_null() || name.starts_with('_') || contains(kRead, name) || contains(family_fields, name) ||
            contains(kHarmless, name)) {
            continue;
        }
        const auto* known = std::ranges::find(kNeutral, name, &NeutralField::name);
        if (known == std::end(kNeutral)) {
            unknown += (unknown.empty() ? "" : ", ") + std::string(name);
        } else if (!is_neutral(value, known->neutral) && !is_switched_off(config, name)) {
            config.fail(name, "is " + JsonMembers::brief(value) +
                                  ", which changes what the network computes and is not supported");
        }
    }
    if (!unknown.empty()) {
        warnings.push_back(config.place().message("unknown and ignored: " + unknown));
    }
}

}  // namespace distilld::models
