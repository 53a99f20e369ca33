#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"

namespace distilld {

/// The documents of `documents` (a dataset with one a row, of at most `sequence_length` positions) side by side in rows
/// of `sequence_length` positions, kept apart: see pack_rows() and TokenBatch::documents. Each is whole, with the
/// labels that it has alone. asked_about() is `documents`.
[[nodiscard]] std::shared_ptr<const Dataset> pack_documents(std::shared_ptr<const Dataset> documents,
                                                            std::uint32_t sequence_length);

/// The same of several teachers' documents: those of a row are of one teacher. Rows stand in the order of their first
/// documents.
[[nodiscard]] std::shared_ptr<const MixedDataset> pack_documents(const MixedDataset& documents,
                                                                 std::uint32_t sequence_length);

}  // namespace distilld
