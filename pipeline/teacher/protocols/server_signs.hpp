#pragma once

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// One model of an OpenAI-style `GET /v1/models`.
struct ListedModel {
    std::string id;
    std::string owner;             ///< `owned_by`: the kind of server; may be empty
    std::uint64_t max_tokens = 0;  ///< `max_model_len`: context including generated tokens; 0 = unknown
};

/// Reads `{"data": [{"id", "owned_by", "max_model_len"}]}`. Other members are ignored.
[[nodiscard]] Result<std::vector<ListedModel>> parse_model_list(std::string_view body);

/// The model of that name; null if it is not among them.
[[nodiscard]] const ListedModel* find_model(const std::vector<ListedModel>& models, std::string_view name) noexcept;

/// "'a', 'b'".
[[nodiscard]] std::string names_of(const std::vector<ListedModel>& models);

/// Requests the list; nullopt if the page does not exist, as behind some gateways. A failure with is_outage() means
/// that the server did not come up.
boost::asio::awaitable<FetchResult<std::optional<std::vector<ListedModel>>>> ask_for_models(ProbeDialogue& dialogue,
                                                                                            std::string target);

/// Signs of a server's kind from its own pages.
struct ServerSigns {
    std::string inference_server;                    ///< `name` of GET /v2 (KServe v2); empty = no such page
    std::optional<std::vector<ListedModel>> models;  ///< GET /v1/models; empty = no such page

    /// Whether a model is listed as `owner`'s.
    [[nodiscard]] bool lists_model_of(std::string_view owner) const noexcept {
        return models && std::any_of(models->begin(), models->end(),
                                     [owner](const ListedModel& model) { return model.owner == owner; });
    }
};

/// Requests the pages below `base`, a path without a trailing slash. A failure with is_outage() means that the server
/// did not come up.
boost::asio::awaitable<FetchResult<ServerSigns>> ask_for_signs(ProbeDialogue& dialogue, std::string base,
                                                               std::string query);

/// Tokenizes kTokenizerText with vLLM or SGLang: POST {"model", "prompt", "add_special_tokens"} to `target`, answered
/// by {"tokens": […]}. Signs without ids if there is no such page or its answer has another form. A failure with
/// is_outage() means that the server did not come up.
boost::asio::awaitable<FetchResult<TokenizerSigns>> ask_to_tokenize(ProbeDialogue& dialogue, std::string target,
                                                                    std::string model);

}  // namespace distilld
