#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// The ids that are put around the ids of a text.
struct TokenFrame {
    std::vector<std::int32_t> before;
    std::vector<std::int32_t> behind;
};

/// "post_processor" of a tokenizer.json, for one text: Sequence, ByteLevel (which only moves offsets),
/// TemplateProcessing, RobertaProcessing, BertProcessing. Others are refused by name.
Result<TokenFrame> read_post_processor(const boost::json::value& component);

}  // namespace distilld
