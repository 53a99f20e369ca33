#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/data/dataset.hpp"

namespace distilld {

/// The rows of `prompts`, of which each batch has `more` columns of padding behind its longest row: room for answers.
[[nodiscard]] std::shared_ptr<const Dataset> with_room_for_answers(std::shared_ptr<const Dataset> prompts,
                                                                   std::uint32_t more);

}  // namespace distilld
