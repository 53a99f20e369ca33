#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// One model of an OpenAI-style `GET /v1/models`.
struct ListedModel {
    std::string id;
    std::string owner;             ///< `owned_by`: which server it is; may be empty
    std::uint64_t max_tokens = 0;  ///< `max_model_len`: context, what is generated included; 0 = not said
};

/// Reads `{"data": [{"id", "owned_by", "max_model_len"}]}`. Other members are passed over.
[[nodiscard]] Result<std::vector<ListedModel>> parse_model_list(std::string_view body);

/// The model of that name; null when it is not among them.
[[nodiscard]] const ListedModel* find_model(const std::vector<ListedModel>& models, std::string_view name) noexcept;

/// "'a', 'b'".
[[nodiscard]] std::string names_of(const std::vector<ListedModel>& models);

/// Asks the page for its list; nothing when there is no such page, as behind some gateways. The failure's kind is one
/// for which is_outage() holds when the server did not come up.
boost::asio::awaitable<FetchResult<std::optional<std::vector<ListedModel>>>> ask_for_models(ProbeDialogue& dialogue,
                                                                                            std::string target);

}  // namespace distilld
