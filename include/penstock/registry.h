#ifndef PEN_REGISTRY_H
#define PEN_REGISTRY_H

#include <penstock/module.h>

PEN_BEGIN

// The module classes that a pipeline file may name.
struct pen_registry;

// Create a registry with the built-in classes. On success *out is owned by the
// caller, on failure NULL.
// Errors: PEN_E_NOMEM. Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_registry_create(struct pen_registry **out, struct pen_error *err);
// Plans and pipelines made from it must be gone. Sets *registry to NULL; NULL
// in it is allowed. Thread: setup.
PEN_API void pen_registry_destroy(struct pen_registry **registry);

// Add a class; it is borrowed until the registry is gone. On failure the
// registry is as before.
// Errors: PEN_E_ARG  another ABI or size, a name (or alias) that is taken, or
//                    a table that contradicts itself; the text says what
//         PEN_E_NOMEM
// Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_registry_add(struct pen_registry *registry,
                 const struct pen_module_class *cls, struct pen_error *err);

// The class of that name or alias, or NULL. *alias (may be NULL) receives the
// alias that matched, or NULL. Thread: any.
PEN_API const struct pen_module_class *
pen_registry_find(const struct pen_registry *registry, const char *name,
                  const struct pen_alias **alias);

// The name nearest to a misspelt one, or NULL if none is near. Thread: any.
PEN_API const char *pen_registry_nearest(const struct pen_registry *registry,
                                         const char *name);

// Write the classes that match into `out` (at most `room`), in alphabetical
// order, and return how many match. category NONE means all; `tags` is a
// NULL-ended list all of which must be present (NULL or empty: all).
// Thread: any.
PEN_API size_t pen_registry_modules(const struct pen_registry *registry,
                                    enum pen_category category,
                                    const char *const *tags,
                                    const struct pen_module_class **out,
                                    size_t room);
PEN_API size_t pen_registry_modules_with_tag(
    const struct pen_registry *registry, const char *tag,
    const struct pen_module_class **out, size_t room);
PEN_API size_t pen_registry_modules_with_tags(
    const struct pen_registry *registry, const char *const *tags,
    const struct pen_module_class **out, size_t room);

// "source", "transform", ... ("" if unknown) and back (NONE). Static.
// Thread: any.
PEN_API const char *pen_category_name(enum pen_category category);
PEN_API enum pen_category pen_category_from_name(const char *name);

// A type that stands for every class with its tags ("Resize"): the planner
// chooses the class by the cost of the whole graph. Its name can be no class's.
struct pen_generic_type {
    const char *name;  // NULL ends the list
    const char *summary;
    const char *tags[3];      // all of which the classes have; NULL-ended
    struct pen_alias preset;  // of the classes that have such a property
};

// All of them, by name. Static. Thread: any.
PEN_API const struct pen_generic_type *pen_generic_types(void);
// The generic type of that name, or NULL. Thread: any.
PEN_API const struct pen_generic_type *pen_generic_type_find(const char *name);
// Write the classes that it stands for into `out` (at most `room`), in
// alphabetical order, and return how many there are. They have the same pins,
// by name and number: a class whose pins differ from the first one's is none.
// Thread: any.
PEN_API size_t pen_registry_generic_classes(const struct pen_registry *registry,
                                            const struct pen_generic_type *type,
                                            const struct pen_module_class **out,
                                            size_t room);

// Texts made from the tables, to be freed with pen_free(); NULL when out of
// memory. Thread: any.
//   describe_text/json  one class: pins, properties, tags
//   describe_generic_*  a generic type: all that its classes take and give, and
//                       which they are
//   list_json           {modules: [...], generic: [...]} of what matches, as
//                       pen_registry_modules() does; a generic type has the
//                       tags that it is made of, and the category of its
//                       classes
//   schema_json         JSON Schema of pipeline files for this registry
PEN_API char *pen_describe_text(const struct pen_module_class *cls);
PEN_API char *pen_describe_json(const struct pen_module_class *cls);
PEN_API char *pen_describe_generic_text(const struct pen_registry *registry,
                                        const struct pen_generic_type *type);
PEN_API char *pen_describe_generic_json(const struct pen_registry *registry,
                                        const struct pen_generic_type *type);
PEN_API char *pen_registry_list_json(const struct pen_registry *registry,
                                     enum pen_category category,
                                     const char *const *tags);
PEN_API char *pen_registry_schema_json(const struct pen_registry *registry);

// Free a text that a function of the library returned; NULL is allowed.
// Thread: any.
PEN_API void pen_free(void *text);

PEN_END

#endif  // PEN_REGISTRY_H
