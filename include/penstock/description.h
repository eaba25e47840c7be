#ifndef PEN_DESCRIPTION_H
#define PEN_DESCRIPTION_H

#include <penstock/issue.h>
#include <penstock/registry.h>

PEN_BEGIN

// A pipeline file as it was read: modules, connections, settings, and the
// place of every value in the text. Reading touches nothing but the file.
struct pen_description;

// Read a pipeline file. What is wrong with its JSON is appended to `issues`;
// then the status is PEN_E_CONFIG and *out NULL. What is wrong with its shape
// (a wrong type, an unknown key) is kept and told by pen_validate() and by
// planning together with everything else, so that one pass tells all.
// On success *out is owned by the caller, on failure NULL.
// Errors: PEN_E_CONFIG  no JSON; issues say where
//         PEN_E_IO      missing or unreadable (err only, like those below)
//         PEN_E_LIMIT   larger than 64 MiB or of too many values
//         PEN_E_NOMEM
// Thread: setup. Blocks on the file.
PEN_API PEN_NODISCARD enum pen_status
pen_description_load(const char *path, struct pen_description **out,
                     struct pen_issues *issues, struct pen_error *err);
// The same from memory, which is borrowed until the call returns; `name` is
// copied and stands for the file in messages (NULL: none). Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_description_parse(const char *text, size_t length, const char *name,
                      struct pen_description **out, struct pen_issues *issues,
                      struct pen_error *err);

// Override a property: "id.prop=value". The value is read as JSON where it is
// JSON, else as a string; whether it fits is told by pen_validate(). On failure
// nothing is changed.
// Errors: PEN_E_ARG     not of that form, or no UTF-8
//         PEN_E_CONFIG  unknown module
//         PEN_E_NOMEM
// Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_description_set(struct pen_description *desc, const char *assignment,
                    struct pen_error *err);

// The settings' device ("auto" if none is given) and the pipeline's name (""
// likewise). Borrowed. Thread: any.
PEN_API const char *pen_description_device(const struct pen_description *desc);
PEN_API const char *pen_description_name(const struct pen_description *desc);

// Plans and pipelines made from it must be gone. Sets *desc to NULL; NULL in
// it is allowed. Thread: setup.
PEN_API void pen_description_destroy(struct pen_description **desc);

// Check everything that can be known without opening anything: whether input
// files are there is looked at, but none is read. Issues are appended.
// Errors: PEN_E_CONFIG  there is an error among them; `err` has the first
//         PEN_E_NOMEM
// Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_validate(const struct pen_description *desc,
             const struct pen_registry *registry, struct pen_issues *issues,
             struct pen_error *err);
// The same, and the headers of input files are read if there is no error: what
// cannot be understood is an issue too. Blocks on the files.
PEN_API PEN_NODISCARD enum pen_status
pen_validate_probe(const struct pen_description *desc,
                   const struct pen_registry *registry,
                   struct pen_issues *issues, struct pen_error *err);

PEN_END

#endif  // PEN_DESCRIPTION_H
