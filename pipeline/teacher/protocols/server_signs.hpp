#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/teacher/protocols/model_list.hpp"

namespace distilld {

/// What a server's own pages say of what it is.
struct ServerSigns {
    std::string inference_server;                    ///< `name` of GET /v2 (KServe v2); empty = there is no such page
    std::optional<std::vector<ListedModel>> models;  ///< GET /v1/models; nothing = there is no such page

    /// Whether a model is listed as `owner`'s.
    [[nodiscard]] bool lists_model_of(std::string_view owner) const noexcept {
        return models && std::any_of(models->begin(), models->end(),
                                     [owner](const ListedModel& model) { return model.owner == owner; });
    }
};

/// Asks the pages below `base`, a path without a slash at its end. A failure for which is_outage() holds means that the
/// server did not come up.
boost::asio::awaitable<FetchResult<ServerSigns>> ask_for_signs(ProbeDialogue& dialogue, std::string base,
                                                               std::string query);

}  // namespace distilld
