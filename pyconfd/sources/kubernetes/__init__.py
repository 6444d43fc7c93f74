"""Reads a cluster from outside of it.

Its modules, for a reader who knows client-go:

=================  ==========================================================================================
``source``         SharedInformerFactory: all reflectors, joined into one Snapshot that is complete or absent
``reflector``      Reflector: list and watch of one resource, and what follows when that fails
``cache``          Store and Lister: the objects of one resource, with an immutable view
``client``         rest.Interface, for several API servers in order
``credentials``    clientcmd: settings, kubeconfig or service account, loaded again when files change
``decode``         the decoder: only the fields that are used
``resources``      what is listed and watched, and the RBAC manifest for it
``events``         the event recorder
``access``         SelfSubjectAccessReview, by really listing and watching
=================  ==========================================================================================

There is no work queue here: a change wakes the loop, which takes the whole Snapshot and asks it what changed.
"""
